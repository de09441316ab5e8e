// Generated cases: every value inside a valid object is replaced, one at a time, by values that
// are nearly valid or hostile, on create and on every way of changing an object.
package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// step is a key of an object (string) or an index of a list (int).
type step any

type mutation struct {
	path  []step
	label string
	// value replaces what is at path; remove takes it away.
	value  any
	remove bool
}

func (m mutation) name() string {
	var text strings.Builder
	for _, s := range m.path {
		fmt.Fprintf(&text, "/%v", s)
	}
	return text.String() + "=" + m.label
}

func (m mutation) pointer() string {
	var text strings.Builder
	for _, s := range m.path {
		name := strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(s))
		text.WriteString("/" + name)
	}
	return text.String()
}

// apply returns a changed copy.
func (m mutation) apply(object any) any {
	changed := clone(object)
	if len(m.path) == 0 {
		return m.value
	}
	parent := changed
	for _, s := range m.path[:len(m.path)-1] {
		parent = child(parent, s)
	}
	switch last := m.path[len(m.path)-1].(type) {
	case string:
		if m.remove {
			delete(parent.(map[string]any), last)
		} else {
			parent.(map[string]any)[last] = m.value
		}
	case int:
		parent.([]any)[last] = m.value
	}
	return changed
}

func child(value any, s step) any {
	switch s := s.(type) {
	case string:
		return value.(map[string]any)[s]
	case int:
		return value.([]any)[s]
	}
	return nil
}

var longText = strings.Repeat("x", 300)

// mutations lists what can be done to each value inside of an object.
func mutations(value any, path []step) []mutation {
	var all []mutation
	put := func(label string, replacement any) {
		all = append(all, mutation{path: path, label: label, value: replacement})
	}
	if len(path) > 0 {
		if _, inObject := path[len(path)-1].(string); inObject {
			all = append(all, mutation{path: path, label: "removed", remove: true})
			put("null", nil)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		put("a list", []any{})
		put("a string", "text")
		put("empty", map[string]any{})
		if len(path) > 0 || value["kind"] != nil {
			with := clone(value).(map[string]any)
			with["bogusField"] = json.Number("1")
			put("with an unknown field", with)
		}
		for _, name := range keys(value) {
			all = append(all, mutations(value[name], extend(path, name))...)
		}
	case []any:
		put("an object", map[string]any{"a": "b"})
		put("empty", []any{})
		put("with null", append(clone(value).([]any), nil))
		if len(value) > 0 {
			put("with its first twice", append(clone(value).([]any), clone(value[0])))
		}
		for i, entry := range value {
			all = append(all, mutations(entry, extend(path, i))...)
		}
	case json.Number:
		put("zero", json.Number("0"))
		put("negative", json.Number("-1"))
		put("a string", value.String())
		put("a fraction", json.Number("1.5"))
		put("huge", json.Number("99999999999"))
		put("two more", json.Number(plusTwo(value)))
	case bool:
		put("the other", !value)
		put("a string", strconv.FormatBool(value))
	case string:
		put("empty", "")
		put("a number", json.Number("7"))
		put("not a name", "Not_Valid! ")
		put("long", longText)
		put("another", "other")
		put("a path", "../../a/b")
	}
	return all
}

func extend(path []step, s step) []step {
	longer := make([]step, len(path), len(path)+1)
	copy(longer, path)
	return append(longer, s)
}

func plusTwo(number json.Number) string {
	value, _ := number.Int64()
	return strconv.FormatInt(value+2, 10)
}

// mutatedCreates posts each sample as it is, then every mutation of it.
func mutatedCreates(sample *Sample) []Case {
	var cases []Case
	for index := range sample.Objects {
		namespace := "made-" + sample.Place
		template := sample.Object(index, "", namespace)
		create := func(name string, change func(any) any, extra string) Case {
			unique := fmt.Sprintf("c%d-%08x", index, hash(name+extra))
			return Case{Kind: sample.Resource, Name: fmt.Sprintf("create %d %s%s", index, name, extra), Namespace: namespace,
				Run: func(session *Session) {
					// A mutation's own values are shared by all cases that use it.
					encoded, _ := json.Marshal(change(sample.Object(index, unique, namespace)))
					body := decode(encoded)
					if metadata, ok := Get(body, "metadata").(map[string]any); ok && metadata["name"] == sample.Name("x") {
						metadata["name"] = sample.Name(unique) // The mutation brought the template's own name.
					}
					session.Do(Request{Method: "POST", Path: sample.Path(namespace), Query: extra, Body: body})
				}}
		}
		same := func(value any) any { return value }
		if sample.Passing {
			whole := create
			create = func(name string, change func(any) any, extra string) Case {
				return whole(name, change, strings.TrimPrefix(extra+"&dryRun=All", "&"))
			}
		}
		for _, extra := range []string{"", "dryRun=All", "dryRun=Some", "fieldManager=me&pretty=true", "fieldValidation=Nonsense"} {
			cases = append(cases, create("as it is", same, extra))
		}
		for _, m := range mutations(template, nil) {
			if len(m.path) == 2 && m.path[0] == "metadata" && m.path[1] == "name" && (m.label == "another" || m.label == "long") {
				continue // Not unique between the cases of a kind; metadataCases has these.
			}
			cases = append(cases, create(m.name(), m.apply, ""))
			if m.label == "with an unknown field" {
				cases = append(cases, create(m.name(), m.apply, "fieldValidation=Strict"), create(m.name(), m.apply, "fieldValidation=Ignore"))
			}
		}
	}
	return cases
}

// mutatedUpdates creates an object and then changes one value of it in every way: by PUT, JSON
// patch, merge patch and strategic merge patch. One of them, taking turns, is carried out last; the
// others are dry runs.
func mutatedUpdates(sample *Sample) []Case {
	ways := []string{"PUT", "json", "merge", "strategic"}
	var cases []Case
	for index := range sample.Objects {
		namespace := "changed-" + sample.Place
		template := sample.Object(index, "", namespace)
		for _, m := range mutations(template, nil) {
			if len(m.path) == 0 || m.path[0] == "apiVersion" || m.path[0] == "kind" {
				continue
			}
			turn := int(hash(m.name()) % 4)
			unique := fmt.Sprintf("u%d-%08x", index, hash(m.name()))
			cases = append(cases, Case{Kind: sample.Resource, Name: fmt.Sprintf("%s %d %s", ways[turn], index, m.name()), Namespace: namespace, Apart: true,
				Run: func(session *Session) {
					body := sample.Object(index, unique, namespace)
					path := sample.Path(namespace)
					created := session.side.Send(Request{Method: "POST", Path: path, Body: body})
					target := path + "/" + sample.Name(unique)
					if sample.Passing {
						created = session.side.settled(target)
						defer session.side.Send(Request{Method: "DELETE", Path: target})
						created.Code = 201
					}
					if created.Code != 201 || !reaches(created.Body, m.path) {
						return
					}
					for i := 1; i < len(ways); i++ {
						request := changeRequest(ways[(turn+i)%len(ways)], target, m, created.Body)
						request.Query = "dryRun=All"
						session.Do(request)
					}
					session.Do(changeRequest(ways[turn], target, m, created.Body))
				}})
		}
	}
	return cases
}

// reaches says whether the parent of path is there in what the server stored.
func reaches(value any, path []step) bool {
	for _, s := range path[:len(path)-1] {
		switch s := s.(type) {
		case string:
			object, ok := value.(map[string]any)
			if !ok || object[s] == nil {
				return false
			}
			value = object[s]
		case int:
			list, ok := value.([]any)
			if !ok || s >= len(list) {
				return false
			}
			value = list[s]
		}
	}
	switch last := path[len(path)-1].(type) {
	case string:
		_, ok := value.(map[string]any)
		return ok
	case int:
		list, ok := value.([]any)
		return ok && last < len(list)
	}
	return false
}

func changeRequest(method, path string, m mutation, stored any) Request {
	switch method {
	case "json":
		operation := map[string]any{"op": "replace", "path": m.pointer(), "value": m.value}
		if m.remove {
			operation = map[string]any{"op": "remove", "path": m.pointer()}
		}
		return Request{Method: "PATCH", Path: path, ContentType: jsonPatch, Body: []any{operation}}
	case "merge", "strategic":
		contentType := mergePatch
		if method == "strategic" {
			contentType = strategicPatch
		}
		return Request{Method: "PATCH", Path: path, ContentType: contentType, Body: m.asMerge(stored)}
	}
	return Request{Method: "PUT", Path: path, Body: m.apply(stored)}
}

// asMerge is the merge patch that makes the change; a list on the way is sent whole.
func (m mutation) asMerge(stored any) any {
	for i, s := range m.path {
		if _, index := s.(int); index {
			whole := mutation{path: m.path[i:], value: m.value, remove: m.remove}
			list := stored
			for _, s := range m.path[:i] {
				list = child(list, s)
			}
			return nest(m.path[:i], whole.apply(list))
		}
	}
	if m.remove {
		return nest(m.path, nil)
	}
	return nest(m.path, m.value)
}

func nest(path []step, value any) any {
	for i := len(path) - 1; i >= 0; i-- {
		value = map[string]any{path[i].(string): value}
	}
	return value
}

func hash(text string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text))
	return sum.Sum32()
}
