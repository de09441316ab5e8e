// Written cases around one object: metadata rules, a whole life, every patch type.
package main

import (
	"encoding/json"
	"strings"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// single makes a case in a namespace shared by the kind, with an object of its own.
func single(sample *Sample, name string, run func(session *Session, path string, object map[string]any)) Case {
	namespace := "single-" + sample.Place
	return Case{Kind: sample.Resource, Name: name, Namespace: namespace, Run: func(session *Session) {
		unique := strings.ReplaceAll(strings.ToLower(strings.Trim(name, " ")), " ", "-")
		unique = strings.Map(func(r rune) rune {
			if r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, unique)
		path, object := sample.Path(namespace), sample.Object(0, strings.Trim(unique, "-"), namespace)
		if sample.Passing {
			defer session.side.Send(Request{Method: "DELETE", Path: path + "/" + Text(object, "metadata", "name")})
		}
		run(session, path, object)
	}}
}

func metadataCases(sample *Sample) []Case {
	var cases []Case
	post := func(name string, metadata map[string]any) {
		if sample.Passing && strings.HasPrefix(name, "resource version") {
			return // In a dry run upstream does not look at it.
		}
		cases = append(cases, single(sample, "metadata "+name, func(session *Session, path string, object map[string]any) {
			whole := object["metadata"].(map[string]any)
			for field, value := range metadata {
				if value == nil {
					delete(whole, field)
				} else {
					whole[field] = value
				}
			}
			options := ""
			if sample.Passing {
				options = "dryRun=All"
			}
			session.Do(Request{Method: "POST", Path: path, Query: options, Body: object})
		}))
	}
	post("name upper case", map[string]any{"name": "UpperCase"})
	post("name with dots", map[string]any{"name": "with.dots.in-it"})
	post("name of 64", map[string]any{"name": strings.Repeat("n", 64)})
	post("name of 254", map[string]any{"name": strings.Repeat("n", 254)})
	post("name with slash", map[string]any{"name": "a/b"})
	post("name with percent", map[string]any{"name": "a%b"})
	post("name dot", map[string]any{"name": "."})
	post("name colons", map[string]any{"name": "system:name:with-colons"})
	post("no name", map[string]any{"name": nil})
	post("generated name", map[string]any{"name": nil, "generateName": "generated-"})
	post("generated name bad", map[string]any{"name": nil, "generateName": "Bad_"})
	post("generated name long", map[string]any{"name": nil, "generateName": strings.Repeat("g", 250)})
	post("other namespace", map[string]any{"namespace": "elsewhere"})
	post("resource version", map[string]any{"resourceVersion": "1"})
	post("resource version zero", map[string]any{"resourceVersion": "0"})
	post("uid", map[string]any{"uid": "6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"})
	post("creation timestamp", map[string]any{"creationTimestamp": "2020-01-01T00:00:00Z"})
	post("creation timestamp bad", map[string]any{"creationTimestamp": "yesterday"})
	post("deletion timestamp", map[string]any{"deletionTimestamp": "2020-01-01T00:00:00Z"})
	post("generation", map[string]any{"generation": 7})
	post("self link", map[string]any{"selfLink": "/a"})
	post("labels bad key", map[string]any{"labels": map[string]any{"-bad-": "v"}})
	post("labels bad prefix", map[string]any{"labels": map[string]any{"Bad_/k": "v"}})
	post("labels bad value", map[string]any{"labels": map[string]any{"k": "not valid"}})
	post("labels long value", map[string]any{"labels": map[string]any{"k": strings.Repeat("v", 64)}})
	post("labels number", map[string]any{"labels": map[string]any{"k": 1}})
	post("annotations bad key", map[string]any{"annotations": map[string]any{"a/b/c": "v"}})
	post("annotations upper key", map[string]any{"annotations": map[string]any{"Upper.Example/Key": "v"}})
	post("annotations huge", map[string]any{"annotations": map[string]any{"k": strings.Repeat("v", 262145)}})
	post("finalizers unqualified", map[string]any{"finalizers": []any{"simple"}})
	post("finalizers bad", map[string]any{"finalizers": []any{"Bad Finalizer"}})
	post("finalizers both policies", map[string]any{"finalizers": []any{"orphan", "foregroundDeletion"}})
	owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "6fa0a1d2-0f0e-4b6c-9d0a-00000000000a"}
	controller := func(uid string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": true}
	}
	post("owner", map[string]any{"ownerReferences": []any{owner}})
	post("owner without uid", map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}}})
	post("owner event", map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Event", "name": "o", "uid": "u"}}})
	post("owner empty", map[string]any{"ownerReferences": []any{map[string]any{}}})
	post("owner two controllers", map[string]any{"ownerReferences": []any{controller("u1"), controller("u2")}})
	post("owner twice", map[string]any{"ownerReferences": []any{owner, owner}})
	post("managed fields bad", map[string]any{"managedFields": []any{map[string]any{"manager": "m", "operation": "Nonsense", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{}}}})
	return cases
}

func lifeCases(sample *Sample) []Case {
	return []Case{
		single(sample, "life", func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			session.Do(Request{Path: path + "/" + name})
			created := session.Do(Request{Method: "POST", Path: path, Body: object})
			session.Do(Request{Method: "POST", Path: path, Body: object})
			session.Do(Request{Path: path + "/" + name})
			session.Do(Request{Path: path + "/" + name, Query: query("resourceVersion", Text(created.Body, "metadata", "resourceVersion"))})
			session.Do(Request{Path: path + "/" + name, Query: "resourceVersion=0"})
			session.Do(Request{Path: path + "/" + name, Query: "resourceVersion=nonsense"})
			session.Do(Request{Path: path + "/" + name, Accept: "application/json;as=Table;v=v1;g=meta.k8s.io"})
			session.Do(Request{Path: path + "/" + name, Accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"})
			stored, ok := clone(created.Body).(map[string]any)
			if !ok || stored["metadata"] == nil {
				return
			}
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			metadata := stored["metadata"].(map[string]any)
			metadata["labels"] = map[string]any{"changed": "yes"}
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored}) // now stale
			metadata["resourceVersion"] = "nonsense"
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			delete(metadata, "resourceVersion")
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Query: "dryRun=All", Body: stored})
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			metadata["uid"] = "6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			delete(metadata, "uid")
			metadata["name"] = "another"
			session.Do(Request{Method: "PUT", Path: path + "/" + name, Body: stored})
			session.Do(Request{Method: "PUT", Path: path + "/absent", Body: object})
			session.Do(Request{Path: path + "/" + name})
		}),
		single(sample, "update with resource version", func(session *Session, path string, object map[string]any) {
			object["metadata"].(map[string]any)["resourceVersion"] = "5"
			session.Do(Request{Method: "PUT", Path: path + "/" + Text(object, "metadata", "name"), Body: object})
		}),
		single(sample, "delete and finalizers", func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			object["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
			session.Do(Request{Method: "POST", Path: path, Body: object})
			session.Do(Request{Method: "DELETE", Path: path + "/" + name})
			session.Do(Request{Path: path + "/" + name})
			session.Do(Request{Method: "DELETE", Path: path + "/" + name})
			session.Do(Request{Method: "PATCH", Path: path + "/" + name, ContentType: mergePatch, Body: `{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`})
			session.Do(Request{Method: "PATCH", Path: path + "/" + name, ContentType: mergePatch, Body: `{"metadata":{"finalizers":null}}`})
			session.Do(Request{Path: path + "/" + name})
		}),
	}
}

// validationCases send fields that are unknown or given twice by every way of writing.
func validationCases(sample *Sample) []Case {
	var cases []Case
	for _, validation := range []string{"", "Ignore", "Warn", "Strict", "Odd"} {
		cases = append(cases, single(sample, "validation "+validation, func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			target := path + "/" + name
			odd := query("fieldValidation", validation, "dryRun", "All")
			unknown := clone(object).(map[string]any)
			unknown["bogus"] = 1
			unknown["metadata"].(map[string]any)["bogus"] = map[string]any{"a": 1}
			session.Do(Request{Method: "POST", Path: path, Query: odd, Body: unknown})
			encoded, _ := json.Marshal(object)
			twice := strings.TrimSuffix(string(encoded), "}") + `,"kind":"` + Text(object, "kind") + `"}`
			session.Do(Request{Method: "POST", Path: path, Query: odd, Body: twice})
			session.Do(Request{Method: "POST", Path: path, Query: odd, ContentType: "application/yaml", Body: twice})
			created := session.side.Send(Request{Method: "POST", Path: path, Body: object})
			if sample.Passing {
				created.Body = session.side.settled(target).Body
			}
			if stored, ok := clone(created.Body).(map[string]any); ok && created.Code == 201 {
				stored["bogus"] = 1
				session.Do(Request{Method: "PUT", Path: target, Query: odd, Body: stored})
			}
			session.Do(Request{Method: "PATCH", Path: target, Query: odd, ContentType: mergePatch, Body: `{"bogus":1,"metadata":{"annotations":{"a":"1"},"annotations":{"b":"2"}}}`})
			session.Do(Request{Method: "PATCH", Path: target, Query: odd, ContentType: strategicPatch, Body: `{"bogus":1,"metadata":{"labels":{"a":"1"},"labels":{"b":"2"}}}`})
			session.Do(Request{Method: "PATCH", Path: target, Query: odd, ContentType: jsonPatch, Body: `[{"op":"add","path":"/bogus","value":1},{"op":"add","path":"/metadata/labels","value":{"a":"1"}}]`})
			delete(unknown["metadata"].(map[string]any), "bogus") // Upstream tells one of two, by chance.
			session.Do(Request{Method: "PATCH", Path: target, Query: odd + "&fieldManager=one&force=true", ContentType: applyPatch, Body: unknown})
			session.Do(Request{Method: "PATCH", Path: target + "/status", Query: odd, ContentType: mergePatch, Body: `{"bogus":1,"status":{"bogus":2}}`})
			session.Do(Request{Method: "DELETE", Path: target, Query: odd})
		}))
	}
	return cases
}

func patchCases(sample *Sample) []Case {
	var cases []Case
	patch := func(name, contentType, body string) {
		cases = append(cases, single(sample, "patch "+name, func(session *Session, path string, object map[string]any) {
			target := path + "/" + Text(object, "metadata", "name")
			object["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "1", "b": "2"}
			session.side.Send(Request{Method: "POST", Path: path, Body: object})
			if sample.Passing {
				session.side.settled(target)
			}
			session.Do(Request{Method: "PATCH", Path: target, ContentType: contentType, Body: body})
			session.Do(Request{Path: target})
		}))
	}
	patch("json add", jsonPatch, `[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`)
	patch("json test fails", jsonPatch, `[{"op":"test","path":"/metadata/annotations/a","value":"9"},{"op":"remove","path":"/metadata/annotations/a"}]`)
	patch("json test passes", jsonPatch, `[{"op":"test","path":"/metadata/annotations/a","value":"1"},{"op":"move","from":"/metadata/annotations/a","path":"/metadata/annotations/c"},{"op":"copy","from":"/metadata/annotations/c","path":"/metadata/annotations/d"}]`)
	patch("json remove absent", jsonPatch, `[{"op":"remove","path":"/metadata/annotations/absent"}]`)
	patch("json replace absent", jsonPatch, `[{"op":"replace","path":"/metadata/labels/absent","value":"x"}]`)
	patch("json bad op", jsonPatch, `[{"op":"nonsense","path":"/metadata"}]`)
	patch("json bad pointer", jsonPatch, `[{"op":"add","path":"metadata/x","value":1}]`)
	patch("json not a list", jsonPatch, `{"metadata":{}}`)
	patch("json empty", jsonPatch, `[]`)
	patch("json unknown field", jsonPatch, `[{"op":"add","path":"/bogus","value":1}]`)
	patch("merge", mergePatch, `{"metadata":{"annotations":{"a":null,"c":"3"}}}`)
	patch("merge whole map away", mergePatch, `{"metadata":{"annotations":null}}`)
	patch("merge bad type", mergePatch, `{"metadata":{"annotations":{"a":1}}}`)
	patch("merge unknown field", mergePatch, `{"bogus":1,"metadata":{"bogus":2}}`)
	patch("merge not json", mergePatch, `{"metadata":`)
	patch("merge a list", mergePatch, `[]`)
	patch("merge another name", mergePatch, `{"metadata":{"name":"another"}}`)
	patch("merge uid", mergePatch, `{"metadata":{"uid":"6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"}}`)
	patch("merge stale", mergePatch, `{"metadata":{"resourceVersion":"1","annotations":{"a":"9"}}}`)
	patch("merge kind", mergePatch, `{"kind":"Nonsense"}`)
	patch("merge nothing", mergePatch, `{}`)
	patch("strategic", strategicPatch, `{"metadata":{"annotations":{"a":null,"c":"3"}}}`)
	patch("strategic replace", strategicPatch, `{"metadata":{"annotations":{"$patch":"replace","z":"1"}}}`)
	patch("strategic delete", strategicPatch, `{"metadata":{"annotations":{"$patch":"delete"}}}`)
	patch("strategic bad directive", strategicPatch, `{"metadata":{"annotations":{"$patch":"nonsense"}}}`)
	patch("strategic finalizers", strategicPatch, `{"metadata":{"finalizers":["example.com/a"],"$setElementOrder/finalizers":["example.com/a"]}}`)
	patch("strategic drop finalizer", strategicPatch, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`)
	patch("strategic owner", strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u1"}]}}`)
	patch("strategic owner without key", strategicPatch, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o"}]}}`)
	patch("strategic not json", strategicPatch, `nonsense`)
	patch("unknown type", "application/nonsense", `{}`)
	patch("json type", "application/json", `{}`)
	patch("no type", " ", `{}`)
	patch("apply without manager", applyPatch, `{}`)
	for _, absent := range []string{jsonPatch, mergePatch, strategicPatch} {
		cases = append(cases, single(sample, "patch absent "+absent, func(session *Session, path string, object map[string]any) {
			session.Do(Request{Method: "PATCH", Path: path + "/absent", ContentType: absent, Body: `{}`})
		}))
	}
	if sample.Passing {
		return cases // Several writes in a row meet those of the server itself.
	}
	cases = append(cases, single(sample, "apply", func(session *Session, path string, object map[string]any) {
		target := path + "/" + Text(object, "metadata", "name")
		session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=one", ContentType: applyPatch, Body: object})
		object["metadata"].(map[string]any)["labels"] = map[string]any{"owner": "two"}
		session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=two", ContentType: applyPatch, Body: object})
		object["metadata"].(map[string]any)["labels"] = map[string]any{"owner": "three"}
		session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=three", ContentType: applyPatch, Body: object})
		session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=three&force=true", ContentType: applyPatch, Body: object})
		session.Do(Request{Path: target})
	}))
	return cases
}
