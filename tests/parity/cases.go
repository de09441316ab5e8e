// A case is a short conversation held with each side on its own; this file collects all of them.
package main

import (
	"fmt"
	"sync"
)

// Case is one conversation.
type Case struct {
	Kind, Name string
	// Namespace is made on each side before its first use; the cases of one namespace may run at
	// the same time, so only cases with a namespace of their own may list.
	Namespace string
	// Subset: we may answer with less than upstream (discovery while kinds are missing).
	Subset bool
	// Apart: no step builds on the one before.
	Apart bool
	Run   func(*Session)
}

// On holds the conversation with one side.
func (c Case) On(side *Side) Transcript {
	session := &Session{side: side, Namespace: c.Namespace}
	if c.Namespace != "" {
		side.ensureNamespace(c.Namespace)
	}
	c.Run(session)
	return session.transcript
}

var ensured sync.Map

// ensureNamespace makes the namespace and the ServiceAccount that a controller would make.
func (s *Side) ensureNamespace(name string) {
	once, _ := ensured.LoadOrStore(fmt.Sprint(s.url, " ", name), &sync.Once{})
	once.(*sync.Once).Do(func() {
		s.Send(Request{Method: "POST", Path: "/api/v1/namespaces", Body: object("v1", "Namespace", name)})
		s.Send(Request{Method: "POST", Path: "/api/v1/namespaces/" + name + "/serviceaccounts", Body: object("v1", "ServiceAccount", "default")})
	})
}

func object(version, kind, name string) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}}
}

// AllCases makes the cases of every served kind and those of the server as a whole; of the
// generated ones, one in share.
func AllCases(samples []*Sample, share int) []Case {
	cases := serverCases(samples)
	for _, sample := range samples {
		cases = append(cases, thin(mutatedCreates(sample), share)...)
		if sample.PostOnly {
			continue
		}
		cases = append(cases, thin(mutatedUpdates(sample), share)...)
		cases = append(cases, metadataCases(sample)...)
		cases = append(cases, patchCases(sample)...)
		cases = append(cases, validationCases(sample)...)
		if sample.Passing {
			// What follows reads and lists what the server itself still changes.
			continue
		}
		cases = append(cases, lifeCases(sample)...)
		cases = append(cases, listCases(sample)...)
		cases = append(cases, watchCases(sample)...)
		cases = append(cases, deleteCases(sample)...)
		cases = append(cases, subresourceCases(sample)...)
		cases = append(cases, applyCases(sample)...)
	}
	cases = append(cases, wrongDefinitionCases()...)
	cases = append(cases, definitionCases()...)
	cases = append(cases, customCases()...)
	return append(cases, policyCases()...)
}

func thin(cases []Case, share int) []Case {
	var kept []Case
	for _, c := range cases {
		if hash(c.Name)%uint32(max(1, share)) == 0 {
			kept = append(kept, c)
		}
	}
	return kept
}
