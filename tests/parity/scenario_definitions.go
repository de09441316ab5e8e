// Written cases for CustomResourceDefinitions that are wrong, or nearly so: all of them in dry runs.
package main

import (
	"fmt"
	"strings"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definition is a valid one, with plural, kind and group of its own.
func definition(plural, group string) map[string]any {
	kind := strings.ToUpper(plural[:1]) + plural[1:len(plural)-1]
	text := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"PLURAL.GROUP"},` +
		`"spec":{"group":"GROUP","scope":"Namespaced","names":{"plural":"PLURAL","singular":"SINGULAR","kind":"KIND","listKind":"KINDList"},` +
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object"}}}}}]}}`
	text = strings.NewReplacer("PLURAL", plural, "SINGULAR", plural[:len(plural)-1], "KIND", kind, "GROUP", group).Replace(text)
	return decode([]byte(text)).(map[string]any)
}

// merged changes a document as a merge patch would.
func merged(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for name, change := range changes {
		if change == nil {
			delete(object, name)
		} else {
			object[name] = merged(object[name], change)
		}
	}
	return object
}

func parsed(text string) any {
	value := decode([]byte(text))
	if value == nil && text != "null" {
		panic("a case is not JSON: " + text)
	}
	return value
}

func version(object map[string]any, index int) map[string]any {
	return Get(object, "spec", "versions").([]any)[index].(map[string]any)
}

func wrongDefinitionCases() []Case {
	var cases []Case
	post := func(name string, change func(object map[string]any)) {
		cases = append(cases, Case{Kind: "customresourcedefinitions", Name: "wrong " + name, Run: func(session *Session) {
			object := definition("things", "wrong.example.com")
			change(object)
			session.Do(Request{Method: "POST", Path: definitions, Query: "dryRun=All", Body: object})
		}})
	}
	whole := func(name, patch string) {
		post(name, func(object map[string]any) { merged(object, parsed(patch)) })
	}
	spec := func(name, patch string) { whole(name, `{"spec":`+patch+`}`) }
	ofVersion := func(name, patch string) {
		post("version "+name, func(object map[string]any) { merged(version(object, 0), parsed(patch)) })
	}
	root := func(name, schema string) {
		post("root "+name, func(object map[string]any) {
			version(object, 0)["schema"] = map[string]any{"openAPIV3Schema": parsed(schema)}
		})
	}
	field := func(name, schema string) {
		root(name, `{"type":"object","properties":{"spec":{"type":"object","properties":{"f":`+schema+`}}}}`)
	}
	wrongNames(whole, spec)
	wrongVersions(spec, ofVersion)
	wrongConversions(spec)
	wrongSchemas(root, field)
	wrongDefaults(root, field)
	wrongRules(root, field)
	return cases
}

type wrong func(name, patch string)

func wrongNames(whole, spec wrong) {
	whole("nothing", `{"spec":null}`)
	whole("empty", `{"spec":{"group":null,"scope":null,"names":null,"versions":null}}`)
	whole("another name", `{"metadata":{"name":"others.wrong.example.com"}}`)
	spec("no group", `{"group":""}`)
	spec("group upper", `{"group":"Wrong.example.com"}`)
	spec("group without dots", `{"group":"wrong"}`)
	whole("group protected", `{"metadata":{"name":"things.wrong.k8s.io"},"spec":{"group":"wrong.k8s.io"}}`)
	whole("group protected, plain", `{"metadata":{"name":"things.k8s.io"},"spec":{"group":"k8s.io"}}`)
	whole("group protected, kubernetes.io", `{"metadata":{"name":"things.wrong.kubernetes.io"},"spec":{"group":"wrong.kubernetes.io"}}`)
	for _, approval := range []string{"https://github.com/kubernetes/kubernetes/pull/78458", "unapproved, experimental", "nonsense", ""} {
		whole("group protected, "+approval, `{"metadata":{"name":"things.wrong.k8s.io","annotations":{"api-approved.kubernetes.io":"`+approval+`"}},"spec":{"group":"wrong.k8s.io"}}`)
	}
	spec("no scope", `{"scope":null}`)
	spec("scope odd", `{"scope":"Odd"}`)
	spec("no plural", `{"names":{"plural":""}}`)
	spec("plural upper", `{"names":{"plural":"Things"}}`)
	spec("no kind", `{"names":{"kind":null}}`)
	spec("kind odd", `{"names":{"kind":"Odd Kind"}}`)
	spec("kind with digit first", `{"names":{"kind":"1Kind"}}`)
	spec("list kind is kind", `{"names":{"listKind":"Thing"}}`)
	spec("list kind odd", `{"names":{"listKind":"odd list"}}`)
	spec("singular odd", `{"names":{"singular":"Odd One"}}`)
	spec("no singular, no list kind", `{"names":{"singular":null,"listKind":null}}`)
	spec("short names odd", `{"names":{"shortNames":["ok","Odd"]}}`)
	spec("short name empty", `{"names":{"shortNames":[""]}}`)
	spec("categories odd", `{"names":{"categories":["all","Odd One"]}}`)
	spec("names long", `{"names":{"plural":"`+strings.Repeat("p", 64)+`"}}`)
	spec("preserves unknown fields", `{"preserveUnknownFields":true}`)
	spec("does not preserve unknown fields", `{"preserveUnknownFields":false}`)
	spec("names a list", `{"names":["a"]}`)
	spec("unknown field", `{"bogus":1}`)
}

func wrongVersions(spec, version wrong) {
	spec("no versions", `{"versions":[]}`)
	spec("versions null", `{"versions":null}`)
	plain := `"schema":{"openAPIV3Schema":{"type":"object"}}`
	spec("no storage", `{"versions":[{"name":"v1","served":true,"storage":false,`+plain+`}]}`)
	spec("two storages", `{"versions":[{"name":"v1","served":true,"storage":true,`+plain+`},{"name":"v2","served":true,"storage":true,`+plain+`}]}`)
	spec("twice the same version", `{"versions":[{"name":"v1","served":true,"storage":true,`+plain+`},{"name":"v1","served":true,"storage":false,`+plain+`}]}`)
	spec("nothing served", `{"versions":[{"name":"v1","served":false,"storage":true,`+plain+`}]}`)
	spec("many versions", `{"versions":[{"name":"v1","served":true,"storage":true,`+plain+`},{"name":"v2alpha1","served":true,"storage":false,`+plain+`},{"name":"other","served":true,"storage":false,`+plain+`}]}`)
	version("without fields", `{"served":null,"storage":null}`)
	version("name upper", `{"name":"V1"}`)
	version("name with dot", `{"name":"v1.1"}`)
	version("name empty", `{"name":""}`)
	version("name long", `{"name":"v`+strings.Repeat("1", 64)+`"}`)
	version("no schema", `{"schema":null}`)
	version("schema empty", `{"schema":{"openAPIV3Schema":null}}`)
	version("warning without deprecation", `{"deprecationWarning":"old"}`)
	version("deprecated", `{"deprecated":true}`)
	version("warning empty", `{"deprecated":true,"deprecationWarning":""}`)
	version("warning long", `{"deprecated":true,"deprecationWarning":"`+strings.Repeat("w", 257)+`"}`)
	version("warning with a line break", `{"deprecated":true,"deprecationWarning":"a\nb"}`)
	version("warning of odd bytes", `{"deprecated":true,"deprecationWarning":"a\u0001b"}`)
	scale := func(paths string) string { return `{"subresources":{"scale":{` + paths + `}}}` }
	version("scale without paths", scale(``))
	version("scale", scale(`"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"`))
	version("scale paths odd", scale(`"specReplicasPath":"spec.replicas","statusReplicasPath":".spec.replicas"`))
	version("scale path list", scale(`"specReplicasPath":".spec.replicas[0]","statusReplicasPath":".status.replicas"`))
	version("scale path alone", scale(`"specReplicasPath":".spec","statusReplicasPath":".status"`))
	version("scale selector", scale(`"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".other.selector"`))
	version("scale selector empty", scale(`"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":""`))
	version("subresources empty", `{"subresources":{}}`)
	column := func(name, fields string) { version("column "+name, `{"additionalPrinterColumns":[{`+fields+`}]}`) }
	column("nothing", ``)
	column("no name", `"type":"string","jsonPath":".spec.a"`)
	column("type odd", `"name":"A","type":"odd","jsonPath":".spec.a"`)
	column("format odd", `"name":"A","type":"string","format":"odd","jsonPath":".spec.a"`)
	column("format of another type", `"name":"A","type":"integer","format":"byte","jsonPath":".spec.a"`)
	column("path without dot", `"name":"A","type":"string","jsonPath":"spec.a"`)
	column("path empty", `"name":"A","type":"string","jsonPath":""`)
	column("path broken", `"name":"A","type":"string","jsonPath":".spec[?(@.a=="`)
	column("path unclosed", `"name":"A","type":"string","jsonPath":".spec.a[0"`)
	column("path filter", `"name":"A","type":"string","jsonPath":".spec.a[?(@.b==\"c\")].d"`)
	column("priority negative", `"name":"A","type":"string","jsonPath":".spec.a","priority":-1`)
	fields := func(name, schema string, paths ...string) {
		list := `{"jsonPath":"` + strings.Join(paths, `"},{"jsonPath":"`) + `"}`
		version("selectable "+name, `{"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":`+schema+`}}}},"selectableFields":[`+list+`]}`)
	}
	known := `{"a":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},"x":{"type":"number"},"o":{"type":"object"},"l":{"type":"array","items":{"type":"string"}},"m":{"type":"object","additionalProperties":{"type":"string"}},"ios":{"x-kubernetes-int-or-string":true},"null":{"type":"string","nullable":true}}`
	fields("plain", known, ".spec.a", ".spec.n", ".spec.b")
	fields("number", known, ".spec.x")
	fields("object", known, ".spec.o")
	fields("list", known, ".spec.l")
	fields("entry of a list", known, ".spec.l[0]")
	fields("entry of a map", known, ".spec.m.k")
	fields("entry of a map, quoted", known, ".spec.m['k']")
	fields("int or string", known, ".spec.ios")
	fields("nullable", known, ".spec.null")
	fields("absent", known, ".spec.absent")
	fields("without dot", known, "spec.a")
	fields("empty", known, "")
	fields("twice", known, ".spec.a", ".spec.a")
	fields("metadata", known, ".metadata.name")
	fields("metadata whole", known, ".metadata")
	fields("api version", known, ".apiVersion")
	fields("status", known, ".status.a")
	fields("broken", known, ".spec.a..b")
	fields("wild", known, ".spec.*")
	many := `{`
	var paths []string
	for i := range 9 {
		many += fmt.Sprintf(`"f%d":{"type":"string"},`, i)
		paths = append(paths, fmt.Sprintf(".spec.f%d", i))
	}
	fields("nine", strings.TrimSuffix(many, ",")+`}`, paths...)
	fields("eight", strings.TrimSuffix(many, ",")+`}`, paths[:8]...)
}

func wrongConversions(spec wrong) {
	conversion := func(name, fields string) { spec("conversion "+name, `{"conversion":{`+fields+`}}`) }
	webhook := func(name, fields string) {
		conversion("webhook "+name, `"strategy":"Webhook","webhook":{`+fields+`}`)
	}
	conversion("empty", ``)
	conversion("odd", `"strategy":"Odd"`)
	conversion("none", `"strategy":"None"`)
	conversion("none with webhook", `"strategy":"None","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://a.example.com"}}`)
	conversion("webhook alone", `"strategy":"Webhook"`)
	webhook("empty", ``)
	url := `"clientConfig":{"url":"https://a.example.com/c"}`
	webhook("url", `"conversionReviewVersions":["v1"],`+url)
	webhook("no versions", url)
	webhook("versions unknown", `"conversionReviewVersions":["v7","v8"],`+url)
	webhook("versions some unknown", `"conversionReviewVersions":["v7","v1beta1"],`+url)
	webhook("versions twice", `"conversionReviewVersions":["v1","v1"],`+url)
	webhook("versions odd", `"conversionReviewVersions":["v1","Odd One"],`+url)
	webhook("no client", `"conversionReviewVersions":["v1"]`)
	client := func(name, fields string) {
		webhook("client "+name, `"conversionReviewVersions":["v1"],"clientConfig":{`+fields+`}`)
	}
	client("empty", ``)
	client("both", `"url":"https://a.example.com","service":{"namespace":"a","name":"b"}`)
	client("http", `"url":"http://a.example.com"`)
	client("fragment", `"url":"https://a.example.com/#x"`)
	client("query", `"url":"https://a.example.com/?x=1"`)
	client("user", `"url":"https://user@a.example.com/"`)
	client("no host", `"url":"https:///a"`)
	client("nonsense", `"url":":"`)
	client("bundle nonsense", `"url":"https://a.example.com","caBundle":"Tm9uc2Vuc2U="`)
	client("bundle not base64", `"url":"https://a.example.com","caBundle":"***"`)
	client("service empty", `"service":{}`)
	client("service", `"service":{"namespace":"a","name":"b"}`)
	client("service path", `"service":{"namespace":"a","name":"b","path":"x"}`)
	client("service path odd", `"service":{"namespace":"a","name":"b","path":"/x//y/ "}`)
	client("service port", `"service":{"namespace":"a","name":"b","port":0}`)
	client("service port large", `"service":{"namespace":"a","name":"b","port":65536}`)
}
