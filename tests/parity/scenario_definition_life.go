// Written cases for the life of CustomResourceDefinitions and APIServices: what the server makes of
// them in the background is waited for, then compared.
package main

import (
	"slices"
	"sort"
	"strings"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// sortConditions takes away the order of conditions, which depends on which controller comes first.
func sortConditions(body any) {
	list, _ := Get(body, "status", "conditions").([]any)
	sort.Slice(list, func(i, j int) bool { return Text(list[i], "type") < Text(list[j], "type") })
}

// settle waits for the server, then compares the object without the order of its conditions.
func (s *Session) settle(path string) Answer {
	answer := s.side.settled(path)
	// What other background work there is ends in a moment: the object is read until it stays.
	for range 50 {
		again := s.side.settled(path)
		if Text(again.Body, "metadata", "resourceVersion") == Text(answer.Body, "metadata", "resourceVersion") {
			break
		}
		answer = again
	}
	sortConditions(answer.Body)
	s.Say(answer)
	return answer
}

// gone waits until the object is deleted.
func (s *Session) gone(path string) {
	s.Until(Request{Path: path}, func(answer Answer) bool { return answer.Code == 404 })
}

func definitionCases() []Case {
	var cases []Case
	on := func(name string, run func(session *Session, object map[string]any, target, collection string)) {
		group := "life" + strings.ReplaceAll(strings.ReplaceAll(name, " ", ""), ",", "") + ".example.com"
		cases = append(cases, Case{Kind: "customresourcedefinitions", Name: "life " + name, Namespace: "definitions", Run: func(session *Session) {
			target := definitions + "/things." + group
			defer session.side.Send(Request{Method: "DELETE", Path: target})
			run(session, definition("things", group), target, "/apis/"+group+"/v1/namespaces/definitions/things")
		}})
	}
	create := func(session *Session, object map[string]any, target string) Answer {
		session.Do(Request{Method: "POST", Path: definitions, Body: object})
		return session.settle(target)
	}
	merge := func(session *Session, target, body string) {
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: body})
	}
	thing := func(object map[string]any, name string) map[string]any {
		return map[string]any{"apiVersion": Text(object, "spec", "group") + "/v1", "kind": "Thing", "metadata": map[string]any{"name": name}}
	}
	served := func(session *Session, collection string) {
		session.Until(Request{Path: collection}, func(answer Answer) bool { return answer.Code == 200 })
	}
	on("plain", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		served(session, collection)
		session.Do(Request{Path: target, Accept: tableForm})
		session.Do(Request{Path: target + "/status"})
		session.Do(Request{Method: "POST", Path: definitions, Body: object})
		group := Text(object, "spec", "group")
		for _, path := range []string{"/apis/" + group, "/apis/" + group + "/v1"} {
			session.Until(Request{Path: path}, func(answer Answer) bool { return answer.Code == 200 })
		}
		session.Until(Request{Path: apiServices + "/v1." + group}, func(answer Answer) bool {
			return condition(answer.Body, "Available") == "True"
		})
		session.Until(Request{Path: "/openapi/v3/apis/" + group + "/v1"}, func(answer Answer) bool { return answer.Code == 200 })
		session.Do(Request{Method: "DELETE", Path: target})
		session.gone(target)
		session.Until(Request{Path: collection}, func(answer Answer) bool { return answer.Code == 404 })
		session.Until(Request{Path: "/apis/" + group}, func(answer Answer) bool { return answer.Code == 404 })
	})
	on("stored versions", func(session *Session, object map[string]any, target, collection string) {
		first := version(object, 0)
		second := clone(first).(map[string]any)
		second["name"], second["storage"] = "v2", false
		spec := object["spec"].(map[string]any)
		spec["versions"] = []any{first, second}
		create(session, object, target)
		session.Do(Request{Method: "PATCH", Path: target, ContentType: jsonPatch, Body: `[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`})
		session.settle(target)
		session.Do(Request{Method: "PATCH", Path: target, ContentType: jsonPatch, Body: `[{"op":"remove","path":"/spec/versions/0"}]`})
		merge(session, target+"/status", `{"status":{"storedVersions":["v1"]}}`)
		merge(session, target+"/status", `{"status":{"storedVersions":[]}}`)
		merge(session, target+"/status", `{"status":{"storedVersions":["v3","v2"]}}`)
		merge(session, target+"/status", `{"status":{"storedVersions":["v2"]}}`)
		session.settle(target)
		session.Do(Request{Method: "PATCH", Path: target, ContentType: jsonPatch, Body: `[{"op":"remove","path":"/spec/versions/0"}]`})
		session.settle(target)
	})
	on("changes", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		for _, change := range []string{
			`{"spec":{"scope":"Cluster"}}`, `{"spec":{"group":"other.example.com"}}`, `{"spec":{"names":{"plural":"others"}}}`, `{"spec":{"names":{"kind":"Other"}}}`,
			`{"spec":{"preserveUnknownFields":true}}`, `{"spec":{"versions":[]}}`, `{"spec":{"conversion":{"strategy":"Webhook"}}}`, `{"status":{"storedVersions":["v9"]}}`, `{"spec":null}`,
		} {
			merge(session, target, change)
			session.settle(target)
		}
		merge(session, target, `{"spec":{"names":{"shortNames":["lc"],"categories":["all"],"singular":"singular"}}}`)
		session.Until(Request{Path: target}, func(answer Answer) bool {
			sortConditions(answer.Body)
			return Text(answer.Body, "status", "acceptedNames", "singular") == "singular"
		})
		merge(session, target+"/status", `{"spec":{"scope":"Cluster"},"metadata":{"labels":{"a":"b"}},"status":{"conditions":null}}`)
		session.settle(target)
		merge(session, target+"/status", `{"status":{"acceptedNames":{"plural":"x","kind":"Y"}}}`)
		merge(session, target+"/status", `{"status":{"acceptedNames":{"plural":"Odd One"}}}`)
		merge(session, target+"/status", `{"status":{"conditions":[{"type":"Odd"}]}}`)
		session.settle(target)
	})
	on("conflict of names", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		group := Text(object, "spec", "group")
		for _, names := range []string{`{"kind":"Thing"}`, `{"kind":"Other","listKind":"ThingList"}`, `{"kind":"Other","singular":"thing"}`, `{"kind":"Other","shortNames":["things","fine"]}`, `{"kind":"Other","singular":"things"}`, `{"kind":"ThingList"}`} {
			other := definition("others", group)
			other["spec"].(map[string]any)["names"] = merged(map[string]any{"plural": "others"}, parsed(names))
			path := definitions + "/others." + group
			session.Do(Request{Method: "POST", Path: definitions, Body: other})
			session.settle(path)
			session.side.Send(Request{Method: "DELETE", Path: path})
			session.gone(path)
		}
		other := definition("others", group)
		other["spec"].(map[string]any)["names"] = map[string]any{"plural": "others", "kind": "Thing"}
		path := definitions + "/others." + group
		session.Do(Request{Method: "POST", Path: definitions, Body: other})
		session.settle(path)
		session.Do(Request{Path: "/apis/" + group + "/v1/others"})
		// The name becomes free, so that the other can have it.
		session.side.Send(Request{Method: "DELETE", Path: target})
		session.gone(target)
		session.Until(Request{Path: path}, func(answer Answer) bool {
			sortConditions(answer.Body)
			return condition(answer.Body, "Established") == "True"
		})
		session.side.Send(Request{Method: "DELETE", Path: path})
	})
	on("approval", func(session *Session, object map[string]any, target, collection string) {
		for i, approval := range []string{"https://github.com/kubernetes/kubernetes/pull/78458", "unapproved, experimental"} {
			plural := []string{"firsts", "seconds"}[i]
			protected := definition(plural, "approval.parity.k8s.io")
			protected["metadata"].(map[string]any)["annotations"] = map[string]any{"api-approved.kubernetes.io": approval}
			path := definitions + "/" + plural + ".approval.parity.k8s.io"
			session.Do(Request{Method: "POST", Path: definitions, Body: protected})
			session.settle(path)
			merge(session, path, `{"metadata":{"annotations":{"api-approved.kubernetes.io":"unapproved"}}}`)
			session.Until(Request{Path: path}, func(answer Answer) bool {
				sortConditions(answer.Body)
				return condition(answer.Body, "KubernetesAPIApprovalPolicyConformant") == "False"
			})
			merge(session, path, `{"metadata":{"annotations":{"api-approved.kubernetes.io":null}}}`)
			session.side.Send(Request{Method: "DELETE", Path: path})
		}
	})
	on("deletion with objects", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		served(session, collection)
		held := thing(object, "held")
		held["metadata"].(map[string]any)["finalizers"] = []any{"example.com/hold"}
		session.Do(Request{Method: "POST", Path: collection, Body: held})
		session.Do(Request{Method: "POST", Path: collection, Body: thing(object, "free")})
		session.Do(Request{Method: "DELETE", Path: target})
		session.Until(Request{Path: collection}, func(answer Answer) bool {
			items, _ := Get(answer.Body, "items").([]any)
			return len(items) == 1 && Text(items[0], "metadata", "deletionTimestamp") != ""
		})
		session.Until(Request{Path: target}, func(answer Answer) bool {
			sortConditions(answer.Body)
			return condition(answer.Body, "Terminating") == "True"
		})
		session.Do(Request{Method: "POST", Path: collection, Body: thing(object, "late")})
		session.Do(Request{Method: "PATCH", Path: collection + "/later", Query: "fieldManager=one", ContentType: applyPatch, Body: thing(object, "later")})
		session.Do(Request{Path: collection + "/held"})
		merge(session, collection+"/held", `{"metadata":{"finalizers":null}}`)
		session.gone(target)
		session.Until(Request{Path: collection}, func(answer Answer) bool { return answer.Code == 404 })
	})
	on("deletion of a watched kind", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		served(session, collection)
		session.Do(Request{Method: "POST", Path: collection, Body: thing(object, "one")})
		done := make(chan Answer)
		go func() {
			done <- session.side.Send(Request{Path: collection, Query: "watch=true&timeoutSeconds=10&resourceVersion=0", Stream: true})
		}()
		session.side.Send(Request{Method: "DELETE", Path: target})
		session.gone(target)
		watched := <-done
		// Whether the watch began before or after the deletion did is chance.
		events, _ := watched.Body.([]any)
		watched.Body = slices.DeleteFunc(events, func(event any) bool { return Text(event, "type") == "MODIFIED" })
		session.Say(watched)
	})
	on("schema change", func(session *Session, object map[string]any, target, collection string) {
		create(session, object, target)
		served(session, collection)
		made := thing(object, "one")
		made["spec"] = map[string]any{"a": "text", "b": 5}
		session.Do(Request{Method: "POST", Path: collection, Body: made})
		schema := `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","default":7}}}},{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"B","type":"integer","jsonPath":".spec.b"}]}]`
		session.Do(Request{Method: "PATCH", Path: target, ContentType: jsonPatch, Body: schema})
		session.Until(Request{Path: collection + "/one", Accept: tableForm}, func(answer Answer) bool {
			columns, _ := Get(answer.Body, "columnDefinitions").([]any)
			return len(columns) == 2 && Text(columns[1], "name") == "B"
		})
		session.Do(Request{Path: collection + "/one"})
		session.Do(Request{Method: "PATCH", Path: collection + "/one", ContentType: mergePatch, Body: `{"spec":{"a":"changed"}}`})
	})
	return append(cases, apiServiceCases()...)
}

// apiServiceCases are about APIServices that stay, served by nobody.
func apiServiceCases() []Case {
	var cases []Case
	service := func(name, spec string) {
		cases = append(cases, Case{Kind: "apiservices", Name: "spec " + name, Run: func(session *Session) {
			object := object("apiregistration.k8s.io/v1", "APIService", "v1.none.example.com")
			object["spec"] = merged(map[string]any{"group": "none.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}, parsed(spec))
			session.Do(Request{Method: "POST", Path: apiServices, Query: "dryRun=All", Body: object})
		}})
	}
	for name, spec := range map[string]string{
		"plain": `{}`, "priorities zero": `{"groupPriorityMinimum":0,"versionPriority":0}`, "priorities large": `{"groupPriorityMinimum":20001,"versionPriority":1001}`,
		"no group": `{"group":""}`, "group odd": `{"group":"Odd"}`, "version odd": `{"version":"V1"}`, "version empty": `{"version":""}`,
		"service": `{"service":{"namespace":"default","name":"absent"}}`, "service port": `{"service":{"namespace":"default","name":"absent","port":0}}`, "service port large": `{"service":{"namespace":"default","name":"absent","port":70000}}`,
		"service empty": `{"service":{}}`, "service without name": `{"service":{"namespace":"default"}}`, "service without namespace": `{"service":{"name":"a"}}`,
		"insecure": `{"insecureSkipTLSVerify":true}`, "insecure with service": `{"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"absent"}}`,
		"insecure with bundle": `{"insecureSkipTLSVerify":true,"caBundle":"QQ==","service":{"namespace":"default","name":"absent"}}`, "bundle nonsense": `{"caBundle":"QQ==","service":{"namespace":"default","name":"absent"}}`, "bundle alone": `{"caBundle":"QQ=="}`,
		"negative": `{"groupPriorityMinimum":-1,"versionPriority":-1}`, "unknown": `{"bogus":1}`,
	} {
		service(name, spec)
	}
	cases = append(cases, Case{Kind: "apiservices", Name: "life", Run: func(session *Session) {
		remote := object("apiregistration.k8s.io/v1", "APIService", "v1.absent.example.com")
		remote["spec"] = parsed(`{"group":"absent.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"absent"}}`)
		target := apiServices + "/v1.absent.example.com"
		session.Do(Request{Method: "POST", Path: apiServices, Body: remote})
		session.settle(target)
		session.Do(Request{Path: target, Accept: tableForm})
		session.Until(Request{Path: "/apis/absent.example.com/v1/things"}, func(answer Answer) bool { return answer.Code == 503 })
		session.Until(Request{Path: "/apis/absent.example.com"}, func(answer Answer) bool { return answer.Code != 404 })
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"spec":{"group":"other.example.com"}}`})
		session.Do(Request{Method: "PATCH", Path: target, ContentType: mergePatch, Body: `{"spec":{"versionPriority":20}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/status", ContentType: mergePatch, Body: `{"status":{"conditions":[{"type":"Odd","status":"Nonsense"}]}}`})
		session.side.Send(Request{Method: "DELETE", Path: target})
		session.gone(target)
		session.Until(Request{Path: "/apis/absent.example.com/v1/things"}, func(answer Answer) bool { return answer.Code == 404 })
		session.Do(Request{Path: apiServices + "/v1."})
		session.Do(Request{Path: apiServices + "/v1.apps"})
		session.Do(Request{Path: apiServices + "/v1.custom.example.com"})
		session.Do(Request{Path: apiServices + "/v1alpha1.custom.example.com"})
		session.Do(Request{Path: apiServices + "/v2.custom.example.com"})
	}})
	return cases
}
