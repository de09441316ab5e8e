// The valid objects that cases start from, one file per kind, and which kinds both sides serve.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Sample is a kind with objects that both sides must accept: the first as small as it can be, the
// others using what the kind offers.
type Sample struct {
	Resource string `json:"-"`
	// Place tells the versions of a kind apart in the names of namespaces.
	Place      string `json:"-"`
	Prefix     string `json:"prefix"`
	Namespaced bool   `json:"namespaced"`
	// PostOnly kinds are questions: answered, not stored.
	PostOnly bool  `json:"postOnly"`
	Objects  []any `json:"objects"`
	// Named is the form of the names of kinds whose names say what they are about; {name} stands in
	// it, and anywhere in the objects, for what a case calls its object.
	Named string `json:"named"`
	// Passing objects change what a server serves: they are made in dry runs where that is enough,
	// removed after each case, and left to the server until it has looked at them.
	Passing bool `json:"passing"`
	// Definition is the CustomResourceDefinition that makes the kind.
	Definition any `json:"definition"`
}

// Name is the whole name of what a case calls name.
func (s *Sample) Name(name string) string {
	if s.Named == "" {
		return name
	}
	return strings.ReplaceAll(s.Named, "{name}", name)
}

// Path is the collection's address.
func (s *Sample) Path(namespace string) string {
	if s.Namespaced {
		return s.Prefix + "/namespaces/" + namespace + "/" + s.Resource
	}
	return s.Prefix + "/" + s.Resource
}

// Object is a fresh copy of a sample with its name and namespace filled in.
func (s *Sample) Object(index int, name, namespace string) map[string]any {
	encoded, _ := json.Marshal(s.Objects[index])
	encoded = bytes.ReplaceAll(encoded, []byte("{namespace}"), []byte(namespace))
	if s.Named != "" && name == "" {
		name = "x"
	}
	encoded = bytes.ReplaceAll(encoded, []byte("{name}"), []byte(name))
	object := decode(encoded).(map[string]any)
	if metadata, ok := object["metadata"].(map[string]any); ok && name != "" {
		metadata["name"] = s.Name(name)
	}
	return object
}

// ReadSamples reads every file of the folders.
func ReadSamples(directories ...string) ([]*Sample, error) {
	var files []string
	for _, directory := range directories {
		found, err := filepath.Glob(filepath.Join(directory, "*.json"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var samples []*Sample
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// What stands behind an @ tells the versions of a kind apart.
		file := strings.TrimSuffix(filepath.Base(file), ".json")
		name, _, _ := strings.Cut(file, "@")
		sample := &Sample{Resource: name, Place: strings.ReplaceAll(file, "@", "-")}
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		if err := decoder.Decode(sample); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		samples = append(samples, sample)
	}
	return samples, nil
}

// Define makes the custom kinds of the samples on one side and waits until they are served.
func Define(side *Side, samples []*Sample) error {
	for _, sample := range samples {
		if sample.Definition == nil {
			continue
		}
		if made := side.Send(Request{Method: "POST", Path: definitions, Body: sample.Definition}); made.Code != 201 {
			return fmt.Errorf("%s of %s: %d %s", sample.Resource, side.url, made.Code, brief(made.Body))
		}
	}
	for _, sample := range samples {
		if sample.Definition == nil {
			continue
		}
		if answer := side.until(Request{Path: sample.Path("default")}, func(answer Answer) bool { return answer.Code == 200 }); answer.Code != 200 {
			made := side.Send(Request{Path: definitions + "/" + Text(sample.Definition, "metadata", "name")})
			return fmt.Errorf("%s of %s: %d %s", sample.Resource, side.url, answer.Code, brief(made.Body))
		}
	}
	return nil
}

// Served keeps the samples of kinds that both sides serve and reports the others.
func Served(ours, upstream *Side, samples []*Sample, report *Report) ([]*Sample, error) {
	left, right := resources(ours), resources(upstream)
	if len(left) == 0 || len(right) == 0 {
		return nil, fmt.Errorf("discovery failed: %d resources here, %d upstream", len(left), len(right))
	}
	var served []*Sample
	sampled := map[string]bool{}
	for _, sample := range samples {
		name := sample.Prefix + "/" + sample.Resource
		sampled[name] = true
		if left[name] && right[name] {
			served = append(served, sample)
		}
	}
	for name := range right {
		if !left[name] {
			report.notServed = append(report.notServed, name)
		} else if !sampled[name] {
			report.notServed = append(report.notServed, name+" (served, but no sample object here: write one)")
		}
	}
	sort.Strings(report.notServed)
	return served, nil
}

func resources(side *Side) map[string]bool {
	found := map[string]bool{}
	prefixes := []string{"/api/v1"}
	groups, _ := Get(side.Send(Request{Path: "/apis"}).Body, "groups").([]any)
	for _, group := range groups {
		versions, _ := Get(group, "versions").([]any)
		for _, version := range versions {
			prefixes = append(prefixes, "/apis/"+Text(version, "groupVersion"))
		}
	}
	for _, prefix := range prefixes {
		list, _ := Get(side.Send(Request{Path: prefix}).Body, "resources").([]any)
		for _, resource := range list {
			if name := Text(resource, "name"); name != "" && !strings.Contains(name, "/") {
				found[prefix+"/"+name] = true
			}
		}
	}
	return found
}

func decode(encoded []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var value any
	_ = decoder.Decode(&value)
	return value
}

func clone(value any) any {
	encoded, _ := json.Marshal(value)
	return decode(encoded)
}
