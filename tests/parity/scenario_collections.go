// Written cases around a collection: list and watch options, deletion, other forms of an answer.
package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// collection makes a case in a namespace of its own holding three objects. Cluster-scoped kinds
// share their collection with the bootstrap objects; a label keeps to ours.
func collection(sample *Sample, name string, run func(session *Session, path, selector string)) Case {
	id := fmt.Sprintf("%s-%08x", sample.Place, hash(name))
	return Case{Kind: sample.Resource, Name: name, Namespace: "all-" + id, Run: func(session *Session) {
		path := sample.Path(session.Namespace)
		var created Answer
		for i, color := range []string{"red", "green", "blue"} {
			object := sample.Object(0, fmt.Sprintf("o%d-%08x", i, hash(name)), session.Namespace)
			object["metadata"].(map[string]any)["labels"] = map[string]any{"color": color, "set": id}
			created = session.side.Send(Request{Method: "POST", Path: path, Body: object})
		}
		// Reads from the cache may lag behind; this one returns when the cache has caught up.
		session.side.Send(Request{Path: path, Query: query("resourceVersionMatch", "NotOlderThan", "resourceVersion", Text(created.Body, "metadata", "resourceVersion"))})
		run(session, path, "set="+id)
	}}
}

var tableForm = "application/json;as=Table;v=v1;g=meta.k8s.io"

func listCases(sample *Sample) []Case {
	var cases []Case
	list := func(name, accept string, pairs ...string) {
		cases = append(cases, collection(sample, "list "+name, func(session *Session, path, selector string) {
			given := append([]string{}, pairs...)
			labelled := false
			for i := 0; i < len(given); i += 2 {
				if given[i] == "labelSelector" {
					labelled = true
					given[i+1] = strings.TrimPrefix(selector+","+given[i+1], "!,")
					if strings.HasPrefix(given[i+1], selector+",ALONE") {
						given[i+1] = strings.TrimPrefix(given[i+1], selector+",ALONE")
					}
				}
			}
			if !labelled {
				given = append(given, "labelSelector", selector)
			}
			session.Do(Request{Path: path, Query: query(given...), Accept: accept})
		}))
	}
	list("all", "")
	list("pretty", "", "pretty", "true")
	list("label in", "", "labelSelector", "color in (red,green)")
	list("label notin", "", "labelSelector", "color notin (red)")
	list("label absent", "", "labelSelector", "!color")
	list("label differs", "", "labelSelector", "color!=red")
	list("label greater", "", "labelSelector", "color>5")
	list("label bad", "", "labelSelector", "ALONEcolor==")
	list("label bad key", "", "labelSelector", "ALONE-bad=x")
	list("label nonsense", "", "labelSelector", "ALONEa in (")
	list("field name", "", "fieldSelector", "metadata.name=o1-00000000")
	list("field namespace", "", "fieldSelector", "metadata.namespace!=elsewhere")
	list("field unknown", "", "fieldSelector", "spec.nonsense=x")
	list("field nonsense", "", "fieldSelector", "a,b=")
	list("limit", "", "limit", "2")
	list("limit zero", "", "limit", "0")
	list("limit negative", "", "limit", "-1")
	list("limit text", "", "limit", "many")
	list("continue nonsense", "", "limit", "1", "continue", "nonsense")
	list("resource version zero", "", "resourceVersion", "0")
	list("resource version nonsense", "", "resourceVersion", "abc")
	list("resource version negative", "", "resourceVersion", "-1")
	list("match without version", "", "resourceVersionMatch", "Exact")
	list("match nonsense", "", "resourceVersion", "1", "resourceVersionMatch", "Nonsense")
	list("match exact zero", "", "resourceVersion", "0", "resourceVersionMatch", "Exact")
	list("match not older zero", "", "resourceVersion", "0", "resourceVersionMatch", "NotOlderThan")
	list("initial events without watch", "", "sendInitialEvents", "true")
	list("bookmarks without watch", "", "allowWatchBookmarks", "true")
	list("timeout nonsense", "", "timeoutSeconds", "abc")
	list("unknown option", "", "nonsense", "1")
	list("as table", tableForm)
	list("as table without objects", tableForm, "includeObject", "None")
	list("as table with objects", tableForm, "includeObject", "Object")
	list("as table bad include", tableForm, "includeObject", "Nonsense")
	list("as metadata", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	list("as unknown", "application/json;as=Nonsense;v=v1;g=meta.k8s.io")
	list("as table or json", tableForm+",application/json")
	list("as yaml", "application/yaml")
	list("as text", "text/plain")
	list("as anything", "*/*")
	cases = append(cases, collection(sample, "list in pages", func(session *Session, path, selector string) {
		next := ""
		for range 3 {
			answer := session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next)})
			next = Text(answer.Body, "metadata", "continue")
			if next == "" {
				return
			}
		}
	}))
	cases = append(cases, collection(sample, "list at a revision", func(session *Session, path, selector string) {
		first := session.Do(Request{Path: path, Query: query("labelSelector", selector)})
		revision := Text(first.Body, "metadata", "resourceVersion")
		session.side.Send(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector+",color=red")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "resourceVersion", revision, "resourceVersionMatch", "Exact")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "resourceVersion", revision, "resourceVersionMatch", "NotOlderThan")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "resourceVersion", revision, "limit", "1")})
	}))
	// Every pair of a revision and how it is meant, plain and in pages.
	cases = append(cases, collection(sample, "list version matrix", func(session *Session, path, selector string) {
		for _, version := range []string{"", "0", "1", "999999999"} {
			for _, match := range []string{"", "Exact", "NotOlderThan", "Nonsense"} {
				for _, limit := range []string{"", "1"} {
					if version == "1" && match != "NotOlderThan" && !(match == "" && limit == "") {
						continue // Whether the first revision is still there depends on the time.
					}
					given := []string{"labelSelector", selector, "resourceVersion", version, "resourceVersionMatch", match}
					if limit != "" {
						given = append(given, "limit", limit)
					}
					session.Do(Request{Path: path, Query: query(given...)})
				}
			}
		}
	}))
	cases = append(cases, collection(sample, "list continued oddly", func(session *Session, path, selector string) {
		first := session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1")})
		next := Text(first.Body, "metadata", "continue")
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next, "resourceVersion", "0")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next, "resourceVersion", "1")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next, "resourceVersionMatch", "NotOlderThan")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "continue", next)})
		session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next), Accept: tableForm})
		session.Do(Request{Path: path, Query: query("limit", "1", "continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiJ4In0")})
		session.Do(Request{Path: path, Query: query("limit", "1", "continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjkiLCJydiI6NSwic3RhcnQiOiJ4In0")})
		session.Do(Request{Path: path, Query: query("limit", "1", "continue", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi94In0")})
	}))
	if sample.Resource == "configmaps" || sample.Resource == "pods" {
		cases = append(cases, collection(sample, "list with a token that is too old", expiredCase))
	}
	if sample.Namespaced {
		// Without a selector the server says how many are left.
		cases = append(cases, collection(sample, "list how many are left", func(session *Session, path, selector string) {
			for _, limit := range []string{"1", "2", "3", "4"} {
				session.Do(Request{Path: path, Query: query("limit", limit)})
			}
			session.Do(Request{Path: path, Query: query("limit", "1", "resourceVersion", "0")})
			session.Do(Request{Path: path, Query: query("limit", "1"), Accept: tableForm})
		}))
		cases = append(cases, collection(sample, "list of all namespaces", func(session *Session, path, selector string) {
			session.Do(Request{Path: sample.Prefix + "/" + sample.Resource, Query: query("labelSelector", selector)})
			session.Do(Request{Method: "POST", Path: sample.Prefix + "/" + sample.Resource, Body: sample.Object(0, "x", session.Namespace)})
			session.Do(Request{Path: strings.Replace(path, session.Namespace, "absent", 1)})
			session.Do(Request{Method: "POST", Path: strings.Replace(path, session.Namespace, "absent", 1), Body: sample.Object(0, "x", "absent")})
		}))
	}
	return cases
}

func watchCases(sample *Sample) []Case {
	var cases []Case
	watch := func(name, accept string, pairs ...string) {
		cases = append(cases, collection(sample, "watch "+name, func(session *Session, path, selector string) {
			// The bookmark that ends the initial events may take upstream a moment.
			seconds := "1"
			if strings.HasPrefix(name, "initial") {
				seconds = "3"
			}
			given := append([]string{"watch", "true", "timeoutSeconds", seconds, "labelSelector", selector}, pairs...)
			session.Do(Request{Path: path, Query: query(given...), Accept: accept, Stream: true})
		}))
	}
	watch("from zero", "", "resourceVersion", "0")
	watch("from now", "")
	watch("nonsense version", "", "resourceVersion", "abc")
	watch("far version", "", "resourceVersion", "999999999")
	watch("initial events", "", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	watch("initial events without match", "", "sendInitialEvents", "true")
	watch("match without initial events", "", "resourceVersionMatch", "NotOlderThan")
	watch("initial events off", "", "sendInitialEvents", "false", "resourceVersionMatch", "NotOlderThan")
	watch("initial events from zero", "", "sendInitialEvents", "true", "resourceVersion", "0", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	watch("initial events from nothing", "", "sendInitialEvents", "true", "resourceVersion", "", "resourceVersionMatch", "NotOlderThan")
	watch("initial events exactly", "", "sendInitialEvents", "true", "resourceVersionMatch", "Exact", "resourceVersion", "1")
	watch("initial events nonsense", "", "sendInitialEvents", "nonsense", "resourceVersionMatch", "NotOlderThan")
	watch("initial events far", "", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "resourceVersion", "999999999", "allowWatchBookmarks", "true")
	watch("initial events as table", tableForm, "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	watch("initial events as metadata", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
	watch("as yaml", "application/yaml", "resourceVersion", "0")
	watch("continued", "", "continue", "nonsense")
	watch("limit", "", "resourceVersion", "0", "limit", "1")
	watch("field unknown", "", "fieldSelector", "spec.nonsense=x")
	watch("as table", tableForm, "resourceVersion", "0")
	watch("as metadata", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "resourceVersion", "0")
	cases = append(cases, collection(sample, "watch of changes", func(session *Session, path, selector string) {
		first := session.side.Send(Request{Path: path, Query: query("labelSelector", selector)})
		revision := Text(first.Body, "metadata", "resourceVersion")
		items, _ := Get(first.Body, "items").([]any)
		if len(items) != 3 {
			return
		}
		target := path + "/" + Text(items[0], "metadata", "name")
		session.side.Send(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"metadata":{"annotations":{"a":"b"}}}`})
		session.side.Send(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"metadata":{"labels":{"set":"other"}}}`})
		session.side.Send(Request{Method: "DELETE", Path: path + "/" + Text(items[1], "metadata", "name"), Query: "gracePeriodSeconds=0"})
		session.Do(Request{Path: path, Query: query("watch", "true", "timeoutSeconds", "1", "labelSelector", selector, "resourceVersion", revision), Stream: true})
		name := Text(items[2], "metadata", "name")
		session.Do(Request{Path: path, Query: query("watch", "true", "timeoutSeconds", "1", "fieldSelector", "metadata.name="+name, "resourceVersion", "0"), Stream: true})
	}))
	cases = append(cases, collection(sample, "watch on the old path", func(session *Session, path, selector string) {
		old := strings.Replace(path, sample.Prefix, sample.Prefix+"/watch", 1)
		session.Do(Request{Path: old, Query: query("timeoutSeconds", "1", "labelSelector", selector, "resourceVersion", "0"), Stream: true})
		first := session.side.Send(Request{Path: path, Query: query("labelSelector", selector, "limit", "1")})
		items, _ := Get(first.Body, "items").([]any)
		if len(items) == 1 {
			session.Do(Request{Path: old + "/" + Text(items[0], "metadata", "name"), Query: query("timeoutSeconds", "1", "resourceVersion", "0"), Stream: true})
		}
	}))
	cases = append(cases, collection(sample, "watch timeouts", func(session *Session, path, selector string) {
		session.Do(Request{Path: path, Query: query("watch", "true", "timeoutSeconds", "abc", "labelSelector", selector)})
		session.Do(Request{Path: path, Query: query("watch", "1", "timeoutSeconds", "1", "labelSelector", selector), Stream: true})
		session.Do(Request{Path: path, Query: query("watch", "false", "timeoutSeconds", "1", "labelSelector", selector)})
		session.Do(Request{Path: path, Query: query("watch", "nonsense", "timeoutSeconds", "1", "labelSelector", selector), Stream: true})
	}))
	return cases
}

func deleteCases(sample *Sample) []Case {
	var cases []Case
	remove := func(name, pairs string, body any) {
		cases = append(cases, single(sample, "delete "+name, func(session *Session, path string, object map[string]any) {
			target := path + "/" + Text(object, "metadata", "name")
			session.side.Send(Request{Method: "POST", Path: path, Body: object})
			session.Do(Request{Method: "DELETE", Path: target, Query: pairs, Body: body})
			session.Do(Request{Path: target})
		}))
	}
	options := func(fields string) string {
		return `{"apiVersion":"v1","kind":"DeleteOptions",` + fields + `}`
	}
	remove("plain", "", nil)
	remove("background", "propagationPolicy=Background", nil)
	remove("foreground", "propagationPolicy=Foreground", nil)
	remove("orphan", "propagationPolicy=Orphan", nil)
	remove("bad policy", "propagationPolicy=Nonsense", nil)
	remove("both policies", "", options(`"propagationPolicy":"Orphan","orphanDependents":true`))
	remove("orphan dependents", "", options(`"orphanDependents":true`))
	remove("grace zero", "gracePeriodSeconds=0", nil)
	remove("grace negative", "gracePeriodSeconds=-5", nil)
	remove("grace text", "gracePeriodSeconds=abc", nil)
	remove("dry run", "dryRun=All", nil)
	remove("dry run bad", "dryRun=Nonsense", nil)
	remove("wrong uid", "", options(`"preconditions":{"uid":"6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"}`))
	remove("wrong version", "", options(`"preconditions":{"resourceVersion":"1"}`))
	remove("body of another kind", "", `{"apiVersion":"v1","kind":"Pod"}`)
	remove("body nonsense", "", `nonsense`)
	remove("body unknown field", "", options(`"bogus":1`))
	remove("body without kind", "", `{"gracePeriodSeconds":0}`)
	cases = append(cases, single(sample, "delete absent", func(session *Session, path string, object map[string]any) {
		session.Do(Request{Method: "DELETE", Path: path + "/absent"})
	}))
	for _, policy := range []string{"Background", "Foreground", "Orphan", "Nonsense"} {
		cases = append(cases, collection(sample, "delete collection "+policy, func(session *Session, path, selector string) {
			session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector+",color=red", "propagationPolicy", policy)})
			session.Do(Request{Path: path, Query: query("labelSelector", selector)})
			session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector), Body: options(`"propagationPolicy":"` + policy + `","dryRun":["All"]`)})
			session.Do(Request{Path: path, Query: query("labelSelector", selector)})
		}))
	}
	cases = append(cases, collection(sample, "delete collection on conditions", func(session *Session, path, selector string) {
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector), Body: options(`"preconditions":{"uid":"6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"}`)})
		session.Do(Request{Path: path, Query: query("labelSelector", selector)})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector, "limit", "1")})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector, "resourceVersion", "0", "resourceVersionMatch", "Exact")})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("fieldSelector", "metadata.name=absent", "labelSelector", selector)})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector, "gracePeriodSeconds", "0")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector)})
	}))
	cases = append(cases, collection(sample, "delete collection", func(session *Session, path, selector string) {
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector+",color!=red", "dryRun", "All")})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", selector+",color!=red")})
		session.Do(Request{Path: path, Query: query("labelSelector", selector)})
		session.Do(Request{Method: "DELETE", Path: path, Query: query("labelSelector", "a in (")})
	}))
	return cases
}

// expiredCase waits until the revision of a list's first page is forgotten, which takes one or two
// compaction intervals.
func expiredCase(session *Session, path, selector string) {
	first := session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1")})
	revision, next := Text(first.Body, "metadata", "resourceVersion"), Text(first.Body, "metadata", "continue")
	second := Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next)}
	for deadline := time.Now().Add(5 * compactionInterval); time.Now().Before(deadline); time.Sleep(time.Second) {
		// Something has to happen for there to be a history.
		session.side.Send(Request{Method: "PATCH", Path: "/api/v1/namespaces/" + session.Namespace, ContentType: mergePatch,
			Body: fmt.Sprintf(`{"metadata":{"annotations":{"time":"%d"}}}`, time.Now().UnixNano())})
		if session.side.Send(second).Code == http.StatusGone {
			break
		}
	}
	expired := session.Do(second)
	// The answer says how to go on all the same.
	next = Text(expired.Body, "metadata", "continue")
	session.Do(Request{Path: path, Query: query("labelSelector", selector, "limit", "1", "continue", next)})
	session.Do(Request{Path: path, Query: query("labelSelector", selector, "resourceVersion", revision, "resourceVersionMatch", "Exact")})
}
