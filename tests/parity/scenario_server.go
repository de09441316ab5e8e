// Written cases for the server as a whole: discovery, OpenAPI, health, addresses and bodies that
// make no sense, who may do what.
package main

import (
	"fmt"
	"regexp"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

func serverCases(samples []*Sample) []Case {
	cases := []Case{}
	get := func(kind, path, accept string, subset bool) {
		name := path
		if accept != "" {
			name += " as " + accept
		}
		cases = append(cases, Case{Kind: kind, Name: name, Subset: subset, Run: func(session *Session) {
			answer := session.Do(Request{Path: path, Accept: accept})
			if answer.ETag != "" {
				session.Do(Request{Path: path, Accept: accept, Header: map[string]string{"If-None-Match": answer.ETag}})
				session.Do(Request{Path: path, Accept: accept, Header: map[string]string{"If-None-Match": `"other"`}})
			}
		}})
	}
	aggregated := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	get("discovery", "/api", "", false)
	get("discovery", "/apis", "", true)
	get("discovery", "/api", aggregated, true)
	get("discovery", "/apis", aggregated, true)
	get("openapi", "/openapi/v3", "", true)
	get("openapi", "/openapi/v2", "", true)
	cases = append(cases, protobufSchemaCase())
	for _, path := range []string{"/api", "/apis", "/version", "/.well-known/openid-configuration", "/openid/v1/jwks", "/apis/apps", "/apis/nonsense", "/apis/apps/v9"} {
		get("openapi", "/openapi/v3"+path, "", true)
	}
	seen := map[string]bool{}
	for _, sample := range samples {
		if seen[sample.Prefix] {
			continue
		}
		seen[sample.Prefix] = true
		get("discovery", sample.Prefix, "", true)
		if group := sample.Prefix[:strings.LastIndex(sample.Prefix, "/")]; group != "/api" {
			get("discovery", group, "", true)
		}
		get("openapi", "/openapi/v3"+sample.Prefix, "", true)
	}
	for _, path := range []string{"/", "/nonsense", "/api/v2", "/api/v1/nonsense", "/apis/nonsense", "/apis/apps/v9", "/apis/apps/v1/nonsense", "/api/v1/namespaces/default/pods/", "/api/v1/namespaces//pods", "/api/v1/watch/namespaces/default/configmaps/x/y/z", "/api/v1/namespaces/default/configmaps/%2e%2e", "/healthz", "/livez", "/readyz", "/healthz/ping", "/healthz/nonsense", "/.well-known/openid-configuration"} {
		path, query, _ := strings.Cut(path, "?")
		cases = append(cases, Case{Kind: "server", Name: "get " + path + query, Subset: path == "/", Run: func(session *Session) {
			session.Do(Request{Path: path, Query: query})
		}})
	}
	for _, path := range []string{"/api", "/api/v1", "/api/v1/namespaces", "/api/v1/namespaces/default/pods/x/log", "/healthz", "/version", "/apis/apps/v1/deployments", "/nonsense", "/openapi/v2"} {
		cases = append(cases, Case{Kind: "server", Name: "anonymous " + path, Run: func(session *Session) {
			session.Do(Request{Path: path, Anonymous: true})
			session.Do(Request{Path: path, Anonymous: true, Header: map[string]string{"Authorization": "Bearer nonsense"}})
			session.Do(Request{Path: path, Anonymous: true, Header: map[string]string{"Authorization": "Basic YTpi"}})
		}})
	}
	cases = append(cases, compressionCase(), metricsCase())
	cases = append(cases, impersonationCases()...)
	return append(cases, bodyCases()...)
}

// protobufSchemaCase reads OpenAPI v2 in the form that older kubectl asks for.
func protobufSchemaCase() Case {
	form := "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	return Case{Kind: "openapi", Name: "/openapi/v2 as protobuf", Subset: true, Run: func(session *Session) {
		answer := session.side.Send(Request{Path: "/openapi/v2", Accept: form})
		var document openapi_v2.Document
		var text []byte
		err := proto.Unmarshal([]byte(answer.Text), &document)
		if err == nil {
			text, err = document.YAMLValue("")
		}
		if err == nil {
			answer.Text = ""
			err = yaml.Unmarshal(text, &answer.Body)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		session.Say(answer)
	}}
}

// impersonationCases ask as somebody else, which is how authorization is seen from outside.
func impersonationCases() []Case {
	var cases []Case
	as := func(name string, header map[string]string, requests ...Request) {
		cases = append(cases, Case{Kind: "server", Name: "as " + name, Namespace: "somebody", Run: func(session *Session) {
			for _, request := range requests {
				request.Header = header
				session.Do(request)
			}
		}})
	}
	questions := []Request{
		{Path: "/api/v1/namespaces/somebody/pods"},
		{Path: "/api/v1/nodes"},
		{Path: "/api/v1/namespaces/somebody/configmaps/x"},
		{Path: "/api/v1/namespaces/somebody/pods/x/log"},
		{Path: "/apis/apps/v1/deployments", Query: "watch=1&timeoutSeconds=1&resourceVersion=0", Stream: true},
		{Method: "POST", Path: "/api/v1/namespaces/somebody/configmaps", Body: object("v1", "ConfigMap", "mine")},
		{Method: "DELETE", Path: "/api/v1/namespaces/somebody/configmaps"},
		{Method: "PATCH", Path: "/api/v1/namespaces/somebody/configmaps/x", ContentType: mergePatch, Body: "{}"},
		{Path: "/api"}, {Path: "/version/nonsense"},
		{Method: "POST", Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`},
		{Method: "POST", Path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":"somebody"}}`},
		{Method: "POST", Path: "/apis/rbac.authorization.k8s.io/v1/namespaces/somebody/rolebindings", Body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"grab"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"}}`},
	}
	as("a user", map[string]string{"Impersonate-User": "jane"}, questions...)
	as("a group member", map[string]string{"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}, questions...)
	as("a service account", map[string]string{"Impersonate-User": "system:serviceaccount:somebody:default"}, questions...)
	as("a scheduler", map[string]string{"Impersonate-User": "system:kube-scheduler"}, questions...)
	as("a group without user", map[string]string{"Impersonate-Group": "g"}, questions[0])
	as("somebody with extra", map[string]string{"Impersonate-User": "jane", "Impersonate-Uid": "7", "Impersonate-Extra-Scopes": "view"}, questions[10])
	return cases
}

// bodyCases post to one collection what no client should.
func bodyCases() []Case {
	var cases []Case
	path := "/api/v1/namespaces/bodies/configmaps"
	post := func(name, contentType, body string) {
		cases = append(cases, Case{Kind: "server", Name: "body " + name, Namespace: "bodies", Run: func(session *Session) {
			session.Do(Request{Method: "POST", Path: path, ContentType: contentType, Body: body})
		}})
	}
	post("empty", "", "")
	post("a list", "", "[]")
	post("null", "", "null")
	post("a string", "", `"text"`)
	post("cut short", "", `{"apiVersion":"v1","kind":"ConfigMap"`)
	post("two documents", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"two"}}{"a":1}`)
	post("no kind", "", `{"metadata":{"name":"no-kind"}}`)
	post("another kind", "", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"other"}}`)
	post("unknown kind", "", `{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"other"}}`)
	post("unknown version", "", `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"other"}}`)
	post("duplicate field", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"duplicate"},"data":{"a":"1"},"data":{"a":"2"}}`)
	post("other case", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"case"},"Data":{"a":"1"}}`)
	post("deep", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+`}`)
	post("bad unicode", "", "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"unicode\"},\"data\":{\"a\":\"\xff\xfe\"}}")
	post("a large one", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"a":"`+strings.Repeat("x", 1<<20+1)+`"}}`)
	post("beyond the limit", "", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"beyond"},"data":{"a":"`+strings.Repeat("x", 3<<20+1)+`"}}`)
	post("yaml", "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: \"1\"\n")
	post("yaml number", "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml-number\ndata:\n  a: 1\n")
	post("yaml bad", "application/yaml", "a: b: c")
	post("yaml duplicate", "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml-duplicate\ndata: {a: x}\ndata: {a: y}\n")
	post("text type", "text/plain", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"text"}}`)
	post("form type", "application/x-www-form-urlencoded", "a=b")
	post("protobuf nonsense", "application/vnd.kubernetes.protobuf", "k8s\x00nonsense")
	post("protobuf without magic", "application/vnd.kubernetes.protobuf", "nonsense")
	return cases
}

// compressionCase asks for a list that is large enough to be worth it, and for one that is not.
func compressionCase() Case {
	return Case{Kind: "server", Name: "compression", Namespace: "compressed", Run: func(session *Session) {
		path := "/api/v1/namespaces/compressed/configmaps"
		gzip := map[string]string{"Accept-Encoding": "gzip"}
		for i := range 40 {
			body := object("v1", "ConfigMap", fmt.Sprintf("large-%02d", i))
			body["data"] = map[string]any{"a": strings.Repeat("x", 4096)}
			session.side.Send(Request{Method: "POST", Path: path, Body: body})
		}
		session.Do(Request{Path: path, Header: gzip})
		session.Do(Request{Path: path + "/large-00", Header: gzip})
		session.Do(Request{Path: path, Query: "limit=2", Header: gzip})
		session.Do(Request{Path: path, Header: map[string]string{"Accept-Encoding": "br, gzip;q=0.5"}})
		session.Do(Request{Path: path, Header: map[string]string{"Accept-Encoding": "br"}})
		session.Do(Request{Path: path, Header: gzip, Accept: tableForm})
	}}
}

// measured are the metrics that dashboards and alerts look for.
var measured = regexp.MustCompile(`^(apiserver_request_total|apiserver_request_duration_seconds|apiserver_current_inflight_requests|apiserver_longrunning_requests|apiserver_storage_objects|apiserver_resource_objects|apiserver_watch_events_total|etcd_request_duration_seconds|kubernetes_build_info|process_(cpu_seconds_total|max_fds|open_fds|resident_memory_bytes|start_time_seconds|virtual_memory_bytes))(_bucket|_sum|_count)?(\{|$)`)

// metricsCase compares their types and labels.
func metricsCase() Case {
	return Case{Kind: "server", Name: "metrics", Namespace: "measured", Run: func(session *Session) {
		path := "/api/v1/namespaces/measured/configmaps"
		session.side.Send(Request{Method: "POST", Path: path, Body: object("v1", "ConfigMap", "watched")})
		session.side.Send(Request{Path: path, Query: "watch=true&timeoutSeconds=1&resourceVersion=0", Stream: true})
		answer := session.side.Send(Request{Path: "/metrics", Accept: "text/plain"})
		families := map[string]any{}
		label := regexp.MustCompile(`([a-z_]+)="`)
		for line := range strings.Lines(answer.Text) {
			fields := strings.Fields(line)
			if len(fields) == 4 && fields[1] == "TYPE" && measured.MatchString(fields[2]) {
				families[fields[2]+" type"] = fields[3]
			} else if len(fields) >= 2 && measured.MatchString(fields[0]) {
				name, labels, _ := strings.Cut(fields[0], "{")
				var names []any
				for _, found := range label.FindAllStringSubmatch(labels, -1) {
					names = append(names, found[1])
				}
				families[name] = names
			}
		}
		session.Say(Answer{Request: answer.Request, Code: answer.Code, ContentType: answer.ContentType, Body: families})
	}}
}
