// Written cases for server-side apply and the bookkeeping of managed fields.
package main

import "strings"

// applyCases tries apply by several managers on every kind, and the finer rules on Deployments and
// ConfigMaps.
func applyCases(sample *Sample) []Case {
	var cases []Case
	on := func(name string, run func(session *Session, path string, object map[string]any)) {
		cases = append(cases, single(sample, "apply "+name, run))
	}
	apply := func(session *Session, target, query string, body any) Answer {
		return session.Do(Request{Method: "PATCH", Path: target, Query: query, ContentType: applyPatch, Body: body})
	}
	on("life", func(session *Session, path string, object map[string]any) {
		target := path + "/" + Text(object, "metadata", "name")
		apply(session, target, "fieldManager=one&dryRun=All", object)
		apply(session, target, "fieldManager=one", object)
		apply(session, target, "fieldManager=one", object)
		labelled := clone(object).(map[string]any)
		labelled["metadata"].(map[string]any)["labels"] = map[string]any{"two": "2", "shared": "x"}
		apply(session, target, "fieldManager=two", labelled)
		labelled["metadata"].(map[string]any)["labels"] = map[string]any{"shared": "y"}
		apply(session, target, "fieldManager=three", labelled)
		apply(session, target, "fieldManager=three&force=true", labelled)
		apply(session, target, "fieldManager=two", object)
		session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=four", ContentType: mergePatch, Body: `{"metadata":{"labels":{"shared":"z","four":"4"}}}`})
		apply(session, target, "fieldManager=three", labelled)
		session.Do(Request{Path: target})
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"metadata":{"managedFields":[]}}`})
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"metadata":{"labels":{"late":"1"}}}`})
		apply(session, target, "fieldManager=one", labelled)
		apply(session, target, "fieldManager=one&force=true", labelled)
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"metadata":{"managedFields":[{}]}}`})
	})
	on("bad input", func(session *Session, path string, object map[string]any) {
		target := path + "/" + Text(object, "metadata", "name")
		apply(session, target, "", object)
		apply(session, target, "fieldManager="+strings.Repeat("m", 129), object)
		apply(session, target, "fieldManager=a%0Ab", object)
		apply(session, target, "fieldManager=one&fieldValidation=Odd&dryRun=Some", object)
		session.Do(Request{Method: "PATCH", Path: target, Query: "force=true", ContentType: mergePatch, Body: `{}`})
		session.Do(Request{Method: "PATCH", Path: target, ContentType: "application/nonsense", Body: `{}`})
		session.Do(Request{Method: "POST", Path: path, Query: "fieldManager=" + strings.Repeat("m", 129), Body: object})
		unknown := clone(object).(map[string]any)
		unknown["nonsense"] = 1
		apply(session, target, "fieldManager=one", unknown)
		named := clone(object).(map[string]any)
		named["metadata"].(map[string]any)["name"] = "other"
		apply(session, target, "fieldManager=one", named)
		delete(named["metadata"].(map[string]any), "name")
		apply(session, target, "fieldManager=one", named)
		managed := clone(object).(map[string]any)
		managed["metadata"].(map[string]any)["managedFields"] = []any{}
		apply(session, target, "fieldManager=one", managed)
		metadata := clone(object).(map[string]any)
		metadata["metadata"].(map[string]any)["labels"] = map[string]any{"a": 1}
		apply(session, target, "fieldManager=one", metadata)
		metadata["metadata"].(map[string]any)["labels"] = "text"
		apply(session, target, "fieldManager=one", metadata)
		uid := clone(object).(map[string]any)
		uid["metadata"].(map[string]any)["uid"] = "6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"
		apply(session, target, "fieldManager=one", uid)
		for _, body := range []string{"", "[]", "text", "a: [", "{}", "apiVersion: v1\nkind: Odd\n"} {
			apply(session, target, "fieldManager=one", body)
		}
		session.Do(Request{Path: target})
	})
	on("status", func(session *Session, path string, object map[string]any) {
		target := path + "/" + Text(object, "metadata", "name")
		apply(session, target+"/status", "fieldManager=one", object)
		apply(session, target, "fieldManager=one", object)
		body := map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"],
			"metadata": map[string]any{"name": Text(object, "metadata", "name"), "annotations": map[string]any{"a": "b"}}}
		apply(session, target+"/status", "fieldManager=two", body)
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: mergePatch, Body: `{"metadata":{"annotations":{"a":"c"}}}`})
		session.Do(Request{Path: target})
	})
	switch sample.Resource {
	case "deployments":
		cases = append(cases, deploymentApplyCases(sample, apply)...)
	case "configmaps":
		on("many managers", func(session *Session, path string, object map[string]any) {
			target := path + "/" + Text(object, "metadata", "name")
			session.Do(Request{Method: "POST", Path: path, Query: "fieldManager=creator", Body: object})
			for _, name := range strings.Split("a b c d e f g h i j k l", " ") {
				session.side.Send(Request{Method: "PATCH", Path: target, Query: "fieldManager=" + name, ContentType: mergePatch, Body: `{"data":{"` + name + `":"1"}}`})
			}
			session.Do(Request{Path: target})
		})
		on("repeated keys", func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			body := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  a: one\n  a: two\n"
			for _, validation := range []string{"Strict", "Warn", "Ignore"} {
				apply(session, path+"/"+name, "fieldManager=one&fieldValidation="+validation, body)
			}
		})
		on("taking over from the annotation", func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			target := path + "/" + name
			plain := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"1","b":"1"}}`
			annotated := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "1", "b": "1"},
				"metadata": map[string]any{"name": name, "annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": plain}}}
			session.Do(Request{Method: "POST", Path: path, Query: "fieldManager=kubectl-client-side-apply", Body: annotated})
			changed := strings.Replace(plain, `"a":"1"`, `"a":"<2>"`, 1)
			apply(session, target, "fieldManager=other", changed)
			apply(session, target, "fieldManager=kubectl", changed)
			session.Do(Request{Method: "PATCH", Path: target, Query: "fieldManager=edit", ContentType: mergePatch, Body: `{"data":{"b":"changed"}}`})
			apply(session, target, "fieldManager=kubectl", strings.Replace(changed, `"b":"1"`, `"b":"3"`, 1))
		})
	}
	return cases
}

func deploymentApplyCases(sample *Sample, apply func(*Session, string, string, any) Answer) []Case {
	container := func(name, rest string) string { return `{"name":"` + name + `","image":"i"` + rest + `}` }
	body := func(name, rest string, containers ...string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `"},"spec":{` + rest +
			`"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[` + strings.Join(containers, ",") + `]}}}}`
	}
	var cases []Case
	on := func(name string, run func(session *Session, target, name string)) {
		cases = append(cases, single(sample, "apply "+name, func(session *Session, path string, object map[string]any) {
			name := Text(object, "metadata", "name")
			run(session, path+"/"+name, name)
		}))
	}
	on("lists", func(session *Session, target, name string) {
		apply(session, target, "fieldManager=one", body(name, "", container("x", `,"ports":[{"containerPort":80},{"containerPort":80,"protocol":"UDP"}],"args":["1"]`), container("y", `,"env":[{"name":"E","value":"1"}]`)))
		apply(session, target, "fieldManager=two", body(name, "", container("z", ""), container("y", `,"env":[{"name":"F","value":"1"}],"resources":{"limits":{"cpu":"1000m"}}`)))
		apply(session, target, "fieldManager=two", body(name, "", container("z", ""), container("y", `,"env":[{"name":"F","value":"1"}],"resources":{"limits":{"cpu":"1000m"}}`)))
		apply(session, target, "fieldManager=one", body(name, "", container("y", `,"env":[{"name":"G","value":"1"},{"name":"E","value":"1"}]`)))
		apply(session, target, "fieldManager=two", body(name, "", container("y", `,"env":[{"name":"E","value":"2"}],"args":["2"]`)))
		apply(session, target, "fieldManager=one", body(name, `"strategy":{"type":"Recreate"},`, container("y", "")))
		apply(session, target, "fieldManager=one", body(name, `"strategy":{"type":"Recreate","rollingUpdate":null},`, container("y", "")))
		session.Do(Request{Path: target})
	})
	on("types", func(session *Session, target, name string) {
		apply(session, target, "fieldManager=one", body(name, `"replicas":"three",`, container("x", "")))
		apply(session, target, "fieldManager=one", body(name, `"replicas":1.5,`, container("x", "")))
		apply(session, target, "fieldManager=one", body(name, `"paused":"yes",`, container("x", "")))
		apply(session, target, "fieldManager=one", body(name, `"paused":1234567,`, container("x", "")))
		apply(session, target, "fieldManager=one", body(name, `"strategy":[1,"a"],`, container("x", "")))
		apply(session, target, "fieldManager=one", body(name, "", container("x", ""), container("x", "")))
		apply(session, target, "fieldManager=one", body(name, "", `{"image":"i"}`))
		apply(session, target, "fieldManager=one", body(name, "", `"text"`))
		apply(session, target, "fieldManager=one", body(name, "", container("x", `,"env":[{"name":"A","value":8080},{"name":"B","value":true}]`)))
		apply(session, target, "fieldManager=one", body(name, "", container("x", `,"env":[{"name":"A","value":{"a":[1,null,"b"]}}]`)))
		apply(session, target, "fieldManager=one", body(name, "", container("x", `,"nonsense":1`)))
		apply(session, target, "fieldManager=one", body(name, "", container("x", `,"resources":{"limits":{"cpu":"much"}}`)))
	})
	on("scale", func(session *Session, target, name string) {
		scale := func(replicas string) string {
			return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"` + name + `"},"spec":{"replicas":` + replicas + `}}`
		}
		apply(session, target, "fieldManager=one", body(name, `"replicas":1,`, container("x", "")))
		apply(session, target+"/scale", "fieldManager=two", scale("2"))
		apply(session, target+"/scale", "fieldManager=two&force=true", scale("2"))
		session.Do(Request{Path: target})
		apply(session, target, "fieldManager=one", body(name, `"replicas":1,`, container("x", "")))
		session.Do(Request{Method: "PATCH", Path: target + "/scale", Query: "fieldManager=three", ContentType: mergePatch, Body: `{"spec":{"replicas":3}}`})
		session.Do(Request{Path: target})
		apply(session, target+"/scale", "fieldManager=two", scale(`"x"`))
		session.Do(Request{Method: "PATCH", Path: target + "/status", Query: "fieldManager=four", ContentType: mergePatch, Body: `{"status":{"replicas":3,"conditions":[{"type":"A","status":"True"}]}}`})
		session.Do(Request{Path: target})
	})
	return cases
}
