// Written cases for custom resources, beside those that every kind has: versions, selectable fields,
// rules about changes, ratcheting, lists that server-side apply merges, scale.
package main

import (
	"fmt"
	"strings"
)

const customGroup = "/apis/custom.example.com/"

func customCases() []Case {
	var cases []Case
	// on gives each case a namespace of its own.
	on := func(kind, name string, run func(session *Session, path func(version string) string)) {
		namespace := fmt.Sprintf("custom-%08x", hash(kind+name))
		cases = append(cases, Case{Kind: kind, Name: "custom " + name, Namespace: namespace, Run: func(session *Session) {
			run(session, func(version string) string { return customGroup + version + "/namespaces/" + namespace + "/" + kind })
		}})
	}
	widget := func(version, name, spec string) string {
		return `{"apiVersion":"custom.example.com/` + version + `","kind":"Widget","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	}
	ruler := func(name, spec string) string {
		return `{"apiVersion":"custom.example.com/v1","kind":"Ruler","metadata":{"name":"` + name + `"},"spec":` + spec + `}`
	}
	post := func(session *Session, path, body string) {
		session.Do(Request{Method: "POST", Path: path, Body: body})
	}
	merge := func(session *Session, path, body string) {
		session.Do(Request{Method: "PATCH", Path: path, ContentType: mergePatch, Body: body})
	}
	apply := func(session *Session, path, query, body string) {
		session.Do(Request{Method: "PATCH", Path: path, Query: query, ContentType: applyPatch, Body: body})
	}
	versions := []string{"v1", "v1beta1", "v1alpha1", "v0", "v9"}
	on("widgets", "versions", func(session *Session, path func(string) string) {
		for i, version := range versions {
			post(session, path(version), widget(version, fmt.Sprintf("w%d", i), `{"size":"small","weight":1.5,"old":"here","odd":1}`))
		}
		for i := range versions {
			for _, version := range versions {
				session.Do(Request{Path: path(version) + fmt.Sprintf("/w%d", i)})
				session.Do(Request{Path: path(version) + fmt.Sprintf("/w%d", i), Accept: tableForm})
			}
		}
		for _, version := range versions {
			session.Do(Request{Path: path(version)})
			session.Do(Request{Path: path(version), Query: "watch=true&timeoutSeconds=1&resourceVersion=0", Stream: true})
		}
		post(session, path("v1"), widget("v1beta1", "mixed", `{"size":"small"}`))
		merge(session, path("v1beta1")+"/w0", `{"spec":{"old":"changed"}}`)
		merge(session, path("v1")+"/w0", `{"spec":{"weight":2.5}}`)
		session.Do(Request{Path: path("v1beta1") + "/w0"})
		apply(session, path("v1beta1")+"/w0", "fieldManager=beta", widget("v1beta1", "w0", `{"size":"large","old":"mine"}`))
		apply(session, path("v1beta1")+"/w0", "fieldManager=beta&force=true", widget("v1beta1", "w0", `{"size":"large","old":"mine"}`))
		apply(session, path("v1")+"/w0", "fieldManager=ga&force=true", widget("v1", "w0", `{"size":"small","parts":[{"name":"a"}]}`))
		apply(session, path("v1")+"/w0", "fieldManager=beta", widget("v1", "w0", `{"size":"small"}`))
		session.Do(Request{Path: path("v1") + "/w0"})
		session.Do(Request{Method: "DELETE", Path: path("v1alpha1") + "/w0"})
	})
	on("widgets", "selectable fields", func(session *Session, path func(string) string) {
		for i, spec := range []string{`{"size":"small","color":"red","on":true}`, `{"size":"large","color":"blue","replicas":3}`, `{"size":"large","on":false,"replicas":0}`} {
			session.side.Send(Request{Method: "POST", Path: path("v1"), Body: widget("v1", fmt.Sprintf("w%d", i), spec)})
		}
		for _, selector := range []string{"spec.color=red", "spec.color!=red", "spec.replicas=3", "spec.replicas=0", "spec.on=true", "spec.on=false", "spec.on=", "spec.size=large", "spec.color=red,spec.on=true", "spec.color=red,metadata.name=w2", "status.phase=", "spec.color==blue", "spec.color", ".spec.color=red", "spec.replicas=x", "metadata.namespace=" + session.Namespace} {
			for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
				session.Do(Request{Path: path(version), Query: query("fieldSelector", selector)})
			}
		}
		session.Do(Request{Path: path("v1"), Query: query("fieldSelector", "spec.color=red", "watch", "true", "timeoutSeconds", "1", "resourceVersion", "0"), Stream: true})
		session.Do(Request{Method: "DELETE", Path: path("v1"), Query: query("fieldSelector", "spec.color=red")})
		session.Do(Request{Path: path("v1")})
	})
	on("widgets", "watch by a field", func(session *Session, path func(string) string) {
		list := session.side.Send(Request{Path: path("v1")})
		session.side.Send(Request{Method: "POST", Path: path("v1"), Body: widget("v1", "w", `{"size":"small"}`)})
		for _, color := range []string{"blue", "red", "red", "green"} {
			session.side.Send(Request{Method: "PATCH", Path: path("v1") + "/w", ContentType: mergePatch, Body: `{"spec":{"color":"` + color + `","note":"` + color + `"}}`})
		}
		session.side.Send(Request{Method: "DELETE", Path: path("v1") + "/w"})
		revision := Text(list.Body, "metadata", "resourceVersion")
		for _, selector := range []string{"spec.color=red", "spec.color!=red", "spec.color=green"} {
			session.Do(Request{Path: path("v1"), Query: query("fieldSelector", selector, "watch", "true", "timeoutSeconds", "1", "resourceVersion", revision), Stream: true})
		}
		session.Do(Request{Path: path("v1beta1"), Query: query("watch", "true", "timeoutSeconds", "1", "resourceVersion", revision), Stream: true})
		session.Do(Request{Path: path("v1"), Query: query("watch", "true", "timeoutSeconds", "1", "resourceVersion", revision), Accept: tableForm, Stream: true})
	})
	on("widgets", "field validation inside", func(session *Session, path func(string) string) {
		odd := widget("v1", "odd", `{"size":"small","odd":1,"parts":[{"name":"a","odd":2}],"free":{"odd":3,"known":{"odd":4}},"template":{"apiVersion":"v1","kind":"Pod","odd":5,"metadata":{"odd":6}},"limits":{"odd":7},"size":"large"}`)
		for _, validation := range []string{"", "Strict", "Warn", "Ignore", "Odd"} {
			options := query("fieldValidation", validation, "dryRun", "All")
			session.Do(Request{Method: "POST", Path: path("v1"), Query: options, Body: odd})
			session.Do(Request{Method: "POST", Path: path("v1"), Query: options, ContentType: "application/yaml", Body: odd})
			apply(session, path("v1")+"/odd", options+"&fieldManager=one", strings.Replace(odd, `,"size":"large"`, ``, 1))
		}
		session.side.Send(Request{Method: "POST", Path: path("v1"), Body: widget("v1", "plain", `{"size":"small"}`)})
		for _, validation := range []string{"Strict", "Warn", "Ignore"} {
			options := query("fieldValidation", validation, "dryRun", "All")
			session.Do(Request{Method: "PATCH", Path: path("v1") + "/plain", Query: options, ContentType: mergePatch, Body: `{"spec":{"odd":1,"either":{"a":"1","odd":2}}}`})
			session.Do(Request{Method: "PATCH", Path: path("v1") + "/plain", Query: options, ContentType: jsonPatch, Body: `[{"op":"add","path":"/spec/odd","value":{"a":1}}]`})
			session.Do(Request{Method: "PATCH", Path: path("v1") + "/plain/status", Query: options, ContentType: mergePatch, Body: `{"status":{"odd":1}}`})
		}
	})
	on("widgets", "apply", func(session *Session, path func(string) string) {
		target := path("v1") + "/w"
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","tags":["a","b"],"parts":[{"name":"x"},{"name":"y","amount":5}],"steps":[{"do":"1"}],"limits":{"a":1},"selector":{"k":"v"},"free":{"a":{"b":1}},"template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"a":1}}}`))
		apply(session, target, "fieldManager=two", widget("v1", "w", `{"size":"small","tags":["b","c"],"parts":[{"name":"z"},{"name":"y","kind":"plain","amount":5}],"limits":{"b":2}}`))
		apply(session, target, "fieldManager=two", widget("v1", "w", `{"size":"small","tags":["c"],"steps":[{"do":"2"}],"selector":{"k":"w"},"parts":[{"name":"y","amount":6}],"limits":{"a":2}}`))
		apply(session, target, "fieldManager=two&force=true", widget("v1", "w", `{"size":"small","tags":["c"],"steps":[{"do":"2"}],"selector":{"k":"w"},"parts":[{"name":"y","amount":6}],"limits":{"a":2}}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small"}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","parts":[{"kind":"x"}]}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","parts":[{"name":"a"},{"name":"a"}]}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","tags":["a","a"]}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","replicas":"three"}`))
		apply(session, target, "fieldManager=one", widget("v1", "w", `{"size":"small","note":null,"tags":null,"parts":null}`))
		session.Do(Request{Path: target})
		merge(session, target, `{"spec":{"parts":[{"name":"q"}],"tags":["x"]}}`)
		session.Do(Request{Method: "PATCH", Path: target + "/status", Query: "fieldManager=st", ContentType: applyPatch, Body: `{"apiVersion":"custom.example.com/v1","kind":"Widget","metadata":{"name":"w"},"status":{"phase":"Ready","conditions":[{"type":"Ready","status":"True"}]}}`})
		session.Do(Request{Method: "PATCH", Path: target + "/status", Query: "fieldManager=st2", ContentType: applyPatch, Body: `{"apiVersion":"custom.example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":"large"},"status":{"conditions":[{"type":"Other","status":"False"}]}}`})
		session.Do(Request{Path: target, Accept: tableForm})
	})
	on("widgets", "status and scale", func(session *Session, path func(string) string) {
		target := path("v1") + "/w"
		post(session, path("v1"), `{"apiVersion":"custom.example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":"small"},"status":{"phase":"Ready"}}`)
		merge(session, target, `{"status":{"phase":"Waiting"}}`)
		merge(session, target+"/status", `{"status":{"phase":"Odd"}}`)
		merge(session, target+"/status", `{"status":{"phase":"Ready","replicas":4,"selector":"a=b"},"spec":{"size":"odd"},"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["example.com/x"]}}`)
		session.Do(Request{Path: target + "/scale"})
		session.Do(Request{Path: path("v1beta1") + "/w/scale"})
		session.Do(Request{Path: path("v1alpha1") + "/w/scale"})
		session.Do(Request{Path: path("v1alpha1") + "/w/status"})
		scale := func(replicas, more string) {
			session.Do(Request{Method: "PUT", Path: target + "/scale", Body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w","namespace":"` + session.Namespace + `"` + more + `},"spec":{"replicas":` + replicas + `}}`})
		}
		scale("5", "")
		scale("11", "")
		scale("-1", "")
		scale(`"x"`, "")
		scale("6", `,"resourceVersion":"1"`)
		scale("6", `,"uid":"6fa0a1d2-0f0e-4b6c-9d0a-00000000000f"`)
		session.Do(Request{Method: "PUT", Path: target + "/scale", Body: `{"apiVersion":"autoscaling/v1","kind":"Odd","spec":{"replicas":1}}`})
		merge(session, target+"/scale", `{"spec":{"replicas":7}}`)
		session.Do(Request{Method: "PATCH", Path: target + "/scale", ContentType: jsonPatch, Body: `[{"op":"replace","path":"/spec/replicas","value":8}]`})
		apply(session, target+"/scale", "fieldManager=scaler&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":9}}`)
		merge(session, target, `{"spec":{"replicas":null}}`)
		session.Do(Request{Path: target + "/scale"})
		session.Do(Request{Path: target})
		session.Do(Request{Method: "DELETE", Path: target + "/scale"})
		session.Do(Request{Path: path("v1") + "/absent/scale"})
	})
	on("rulers", "transitions", func(session *Session, path func(string) string) {
		target := path("v1") + "/r"
		post(session, path("v1"), ruler("r", `{"min":1,"kept":"k","count":3,"members":[{"id":"a","value":5}]}`))
		for _, change := range []string{
			`{"kept":"other"}`, `{"kept":null}`, `{"count":2}`, `{"count":4}`, `{"members":[{"id":"a","value":4}]}`, `{"members":[{"id":"b","value":1},{"id":"a","value":6}]}`, `{"members":[{"id":"b","value":0},{"id":"a","value":1}]}`,
			`{"min":50}`, `{"items":["bad","good","bad"]}`, `{"items":["much longer than ten"]}`, `{"name":"zzz"}`, `{"named":{"a":1,"b":2,"c":3}}`, `{"divisor":0}`, `{"divisor":200}`, `{"quantity":-1}`, `{"quantity":"nonsense"}`, `{"url":"http://a"}`, `{"url":"::"}`, `{"since":"2019-01-01T00:00:00Z"}`, `{"since":"nonsense"}`, `{"for":"2h"}`, `{"for":"nonsense"}`, `{"ip":"300.0.0.1"}`,
			`{"min":"text"}`, `{"min":50,"items":["bad"],"kept":"x"}`, `{"prefix":"abcdefghijklmnop"}`,
		} {
			merge(session, target, `{"spec":`+change+`}`)
		}
		session.Do(Request{Path: target})
	})
	on("rulers", "ratcheting", func(session *Session, path func(string) string) {
		group := "ratchet.example.com"
		object := definition("things", group)
		version(object, 0)["schema"] = parsed(`{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}`)
		target := definitions + "/things." + group
		session.side.Send(Request{Method: "POST", Path: definitions, Body: object})
		defer session.side.Send(Request{Method: "DELETE", Path: target})
		session.side.settled(target)
		collection := "/apis/" + group + "/v1/namespaces/" + session.Namespace + "/things"
		session.Until(Request{Path: collection}, func(answer Answer) bool { return answer.Code == 200 })
		session.Do(Request{Method: "POST", Path: collection, Body: `{"apiVersion":"` + group + `/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"n":5,"s":"bad","rule":1,"list":[{"k":"a","v":"bad"},{"k":"b","v":"bad"}],"set":["bad","fine"],"atomic":["bad","bad"],"map":{"a":"bad","b":"bad"},"other":"x"}}`})
		bad := `{"type":"string","maxLength":2}`
		tight := `{"type":"object","required":["missing"],"properties":{"n":{"type":"integer","maximum":3},"s":` + bad + `,"rule":{"type":"integer","x-kubernetes-validations":[{"rule":"self > 3","message":"too small"}]},"list":{"type":"array","maxItems":5,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":` + bad + `}}},"set":{"type":"array","x-kubernetes-list-type":"set","items":` + bad + `},"atomic":{"type":"array","items":` + bad + `},"map":{"type":"object","additionalProperties":` + bad + `},"other":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.other != 'x'","message":"other is x"}]}`
		session.Do(Request{Method: "PATCH", Path: target, ContentType: jsonPatch, Body: `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":` + tight + `},{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":[{"name":"New","type":"string","jsonPath":".spec.s"}]}]`})
		session.Until(Request{Path: collection, Accept: tableForm}, func(answer Answer) bool {
			columns, _ := Get(answer.Body, "columnDefinitions").([]any)
			return len(columns) == 2 && Text(columns[1], "name") == "New"
		})
		for _, change := range []string{
			`{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"n":6}}`, `{"spec":{"s":"worse"}}`, `{"spec":{"rule":2}}`, `{"spec":{"other":"y"}}`, `{"spec":{"missing":1}}`, `{"spec":{"list":[{"k":"a","v":"bad"},{"k":"c","v":"bad"}]}}`, `{"spec":{"list":[{"k":"b","v":"bad"},{"k":"a","v":"bad"}]}}`, `{"spec":{"set":["bad","fine","ok"]}}`, `{"spec":{"atomic":["bad","bad","ok"]}}`, `{"spec":{"map":{"c":"ok"}}}`, `{"spec":{"map":{"c":"worse"}}}`, `{"spec":{"n":2,"s":"ok","rule":5}}`,
		} {
			merge(session, collection+"/t", change)
		}
		session.Do(Request{Path: collection + "/t"})
	})
	on("widgets", "paths", func(session *Session, path func(string) string) {
		for _, address := range []string{customGroup + "v1", strings.TrimSuffix(customGroup, "/"), customGroup + "v0", customGroup + "v9", customGroup + "v1/nonsense", customGroup + "v1/widgets/x", customGroup + "v1/namespaces/a/gadgets", customGroup + "v2/namespaces/a/gadgets", customGroup + "v2/gadgets/absent", path("v1") + "/absent/odd", customGroup + "v1/watch/widgets"} {
			session.Do(Request{Path: address, Query: "timeoutSeconds=1"})
		}
		post(session, customGroup+"v1/widgets", widget("v1", "x", `{"size":"small"}`))
		session.Do(Request{Path: path("v1"), Accept: "application/vnd.kubernetes.protobuf"})
		session.Do(Request{Path: path("v1"), Accept: "application/vnd.kubernetes.protobuf,application/json"})
		session.Do(Request{Path: path("v1"), Accept: "application/cbor"})
		session.Do(Request{Method: "POST", Path: path("v1"), ContentType: "application/vnd.kubernetes.protobuf", Body: "k8s\x00nonsense"})
		session.Do(Request{Method: "POST", Path: path("v1"), ContentType: "text/plain", Body: "x"})
		for _, body := range []string{``, `{}`, `[]`, `null`, `{"kind":"Widget"}`, `{"apiVersion":"custom.example.com/v1","kind":"Odd"}`, `{"apiVersion":"v1","kind":"Widget","metadata":{"name":"x"},"spec":{"size":"small"}}`, `{"apiVersion":"custom.example.com/v1","kind":"Widget","metadata":[]}`, `{"apiVersion":"custom.example.com/v1","kind":"Widget","metadata":{"name":"x"},"spec":[]}`, `{"apiVersion":"custom.example.com/v1","kind":"WidgetList","items":[]}`} {
			post(session, path("v1"), body)
		}
	})
	return cases
}
