// Written cases for what hangs below an object.
package main

// subresourceCases tries status and scale on every kind (also where there is none) and the
// subresources that belong to one kind.
func subresourceCases(sample *Sample) []Case {
	var cases []Case
	on := func(name string, run func(session *Session, path, target string)) {
		cases = append(cases, single(sample, "subresource "+name, func(session *Session, path string, object map[string]any) {
			session.side.Send(Request{Method: "POST", Path: path, Body: object})
			run(session, path, path+"/"+Text(object, "metadata", "name"))
		}))
	}
	on("status", func(session *Session, path, target string) {
		read := session.Do(Request{Path: target + "/status"})
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: mergePatch, Body: `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: mergePatch, Body: `{"status":{"conditions":[{"type":"Odd","status":"True"}]}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: strategicPatch, Body: `{"status":{"conditions":[{"type":"Even","status":"Nonsense"}]}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: mergePatch, Body: `{"status":{"replicas":-1,"phase":"Nonsense"}}`})
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"status":{"replicas":5,"phase":"Failed"}}`})
		if read.Code == 200 {
			session.Do(Request{Method: "PUT", Path: target + "/status", Body: read.Body})
		}
		session.Do(Request{Method: "POST", Path: target + "/status", Body: "{}"})
		session.Do(Request{Method: "DELETE", Path: target + "/status"})
		session.Do(Request{Path: path + "/absent/status"})
	})
	on("dry run", func(session *Session, path, target string) {
		session.Do(Request{Method: "PATCH", Path: target + "/status", Query: "dryRun=All", ContentType: mergePatch, Body: `{"metadata":{"labels":{"dry":"run"}},"status":{"replicas":7}}`})
		if read := session.side.Send(Request{Path: target + "/status"}); read.Code == 200 {
			session.Do(Request{Method: "PUT", Path: target + "/status", Query: "dryRun=All", Body: read.Body})
		}
		session.Do(Request{Method: "PATCH", Path: target + "/status", Query: "dryRun=Some", ContentType: mergePatch, Body: `{}`})
		session.Do(Request{Method: "PATCH", Path: target + "/scale", Query: "dryRun=All", ContentType: mergePatch, Body: `{"spec":{"replicas":9}}`})
		session.Do(Request{Method: "PUT", Path: target + "/scale", Query: "dryRun=All", Body: `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":8}}`})
		session.Do(Request{Method: "POST", Path: target + "/binding", Query: "dryRun=All", Body: `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"a-node"}}`})
		session.Do(Request{Method: "POST", Path: target + "/eviction", Query: "dryRun=Some", Body: `{"apiVersion":"policy/v1","kind":"Eviction"}`})
		session.Do(Request{Method: "POST", Path: target + "/token", Query: "dryRun=All", Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/ephemeralcontainers", Query: "dryRun=All", ContentType: strategicPatch, Body: `{"spec":{"ephemeralContainers":[{"name":"debug","image":"busybox"}]}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/approval", Query: "dryRun=All", ContentType: mergePatch, Body: `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"r"}]}}`})
		session.Do(Request{Path: target})
	})
	on("scale", func(session *Session, path, target string) {
		session.Do(Request{Path: target + "/scale"})
		session.Do(Request{Method: "PATCH", Path: target + "/scale", ContentType: mergePatch, Body: `{"spec":{"replicas":3}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/scale", ContentType: mergePatch, Body: `{"spec":{"replicas":-3}}`})
		session.Do(Request{Method: "PUT", Path: target + "/scale", Body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"other"},"spec":{"replicas":1}}`})
		session.Do(Request{Path: target})
	})
	on("nonsense", func(session *Session, path, target string) {
		session.Do(Request{Path: target + "/nonsense"})
		session.Do(Request{Method: "POST", Path: target, Body: "{}"})
		session.Do(Request{Method: "PUT", Path: path, Body: "{}"})
	})
	switch sample.Resource {
	case "pods":
		binding := func(body string) func(*Session, string, string) {
			return func(session *Session, path, target string) {
				session.Do(Request{Method: "POST", Path: target + "/binding", Body: body})
				session.Do(Request{Path: target})
				session.Do(Request{Method: "POST", Path: target + "/binding", Body: body})
			}
		}
		on("binding", binding(`{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"a-node"}}`))
		on("binding with metadata", binding(`{"apiVersion":"v1","kind":"Binding","metadata":{"annotations":{"a":"b"},"labels":{"c":"d"}},"target":{"name":"a-node"}}`))
		on("binding without target", binding(`{"apiVersion":"v1","kind":"Binding"}`))
		on("binding to a pod", binding(`{"apiVersion":"v1","kind":"Binding","target":{"kind":"Pod","name":"x"}}`))
		on("binding wrong uid", binding(`{"apiVersion":"v1","kind":"Binding","metadata":{"uid":"6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"},"target":{"kind":"Node","name":"a-node"}}`))
		on("eviction", func(session *Session, path, target string) {
			session.Do(Request{Method: "POST", Path: target + "/eviction", Body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"other"}}`})
			session.Do(Request{Method: "POST", Path: target + "/eviction", Query: "dryRun=All", Body: `{"apiVersion":"policy/v1","kind":"Eviction"}`})
			session.Do(Request{Method: "POST", Path: target + "/eviction", Body: `{"apiVersion":"policy/v1","kind":"Eviction"}`})
			session.Do(Request{Path: target})
		})
		on("log", func(session *Session, path, target string) {
			for _, options := range []string{"", "container=absent", "tailLines=-1", "sinceSeconds=0", "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", "limitBytes=0", "container=c&follow=abc"} {
				session.Do(Request{Path: target + "/log", Query: options})
			}
			session.Do(Request{Path: path + "/absent/log"})
		})
		on("graceful deletion", func(session *Session, path, target string) {
			session.Do(Request{Method: "POST", Path: target + "/binding", Body: `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"a-node"}}`})
			session.Do(Request{Method: "DELETE", Path: target})
			session.Do(Request{Path: target})
			session.Do(Request{Method: "DELETE", Path: target, Query: "gracePeriodSeconds=60"})
			session.Do(Request{Method: "DELETE", Path: target, Query: "gracePeriodSeconds=5"})
			session.Do(Request{Path: target})
			session.Do(Request{Method: "DELETE", Path: target, Query: "gracePeriodSeconds=0"})
			session.Do(Request{Path: target})
		})
		on("ephemeral containers", func(session *Session, path, target string) {
			session.Do(Request{Method: "PATCH", Path: target + "/ephemeralcontainers", ContentType: strategicPatch, Body: `{"spec":{"ephemeralContainers":[{"name":"debug","image":"busybox"}]}}`})
			session.Do(Request{Method: "PATCH", Path: target, ContentType: strategicPatch, Body: `{"spec":{"ephemeralContainers":[{"name":"debug2","image":"busybox"}]}}`})
		})
		on("resize", func(session *Session, path, target string) {
			session.Do(Request{Method: "PATCH", Path: target + "/resize", ContentType: strategicPatch, Body: `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`})
		})
	case "serviceaccounts":
		token := func(name, body string) {
			on("token "+name, func(session *Session, path, target string) {
				session.Do(Request{Method: "POST", Path: target + "/token", Body: body})
			})
		}
		token("plain", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
		token("audience", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["a"],"expirationSeconds":3600}}`)
		token("short", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":5}}`)
		token("long", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":99999999999}}`)
		token("bound to absent pod", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"absent"}}}`)
		token("bound to nonsense", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"kind":"Nonsense","apiVersion":"v1","name":"x"}}}`)
	case "namespaces":
		on("finalize", func(session *Session, path, target string) {
			session.Do(Request{Method: "DELETE", Path: target})
			read := session.Do(Request{Path: target})
			session.Do(Request{Method: "POST", Path: target + "/configmaps", Body: object("v1", "ConfigMap", "late")})
			namespace, ok := clone(read.Body).(map[string]any)
			if !ok {
				return
			}
			namespace["spec"] = map[string]any{}
			session.Do(Request{Method: "PUT", Path: target + "/finalize", Body: namespace})
			session.Do(Request{Path: target})
		})
		on("delete a kept one", func(session *Session, path, target string) {
			for _, name := range []string{"default", "kube-system", "kube-public"} {
				session.Do(Request{Method: "DELETE", Path: path + "/" + name})
			}
		})
	}
	return cases
}
