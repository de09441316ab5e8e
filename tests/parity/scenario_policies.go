// Written cases for admission policies: expressions that do not compile, and what policies do to the
// ConfigMaps of a namespace.
package main

import (
	"fmt"
	"strings"
)

const registration = "/apis/admissionregistration.k8s.io/v1/"

func policyCases() []Case {
	var cases []Case
	cases = append(cases, wrongPolicyCases()...)
	cases = append(cases, validatingPolicyCases()...)
	return append(cases, mutatingPolicyCases()...)
}

// wrongPolicyCases post policies whose expressions are odd, in dry runs.
func wrongPolicyCases() []Case {
	var cases []Case
	post := func(plural, kind, name, spec string) {
		cases = append(cases, Case{Kind: plural, Name: "wrong " + name, Run: func(session *Session) {
			object := object("admissionregistration.k8s.io/v1", kind, "wrong.example.com")
			object["spec"] = parsed(spec)
			session.Do(Request{Method: "POST", Path: registration + plural, Query: "dryRun=All", Body: object})
		}})
	}
	constraints := `"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":["sample.example.com"],"apiVersions":["v1"],"resources":["samples"]}]}`
	validating := func(name, fields string) {
		post("validatingadmissionpolicies", "ValidatingAdmissionPolicy", name, `{`+constraints+`,`+fields+`}`)
	}
	for _, expression := range []string{
		``, ` `, `object.`, `object.x == 1`, `'text'`, `1`, `object.x`, `object.metadata.name == 'a'`, `nonsense`, `oldObject == null`, `request.operation == 'CREATE'`, `request.odd == 1`, `request.userInfo.extra['a'][0] == 'b'`, `request.options.dryRun`, `params.x == 1`, `params == null`,
		`namespaceObject.metadata.name == 'a'`, `namespaceObject.spec.odd == 1`, `variables.x`, `authorizer.group('').resource('pods').namespace('a').check('get').allowed()`, `authorizer.requestResource.check('get').reason() == ''`, `authorizer.odd()`, `self.x == 1`, `object.l.all(x, x.all(y, y == 1))`, `quantity('1') == quantity('1000m')`, `object.x + 1 > 2 && 'a' + 1 == 'b'`, `has(object.x)`, `[1, 'a'] == [1]`, `JSONPatch{op: 'add'} == null`, `Object{} == null`, `authorizer.serviceAccount('a', 'B C').path('/x').check('get').allowed()`, `authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c in (d)').check('list').errored()`,
		strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
	} {
		validating("expression "+expression, `"validations":[{"expression":`+quoted(expression)+`}]`)
		validating("condition "+expression, `"validations":[{"expression":"true"}],"matchConditions":[{"name":"c","expression":`+quoted(expression)+`}]`)
		validating("variable "+expression, `"validations":[{"expression":"variables.v == 1"}],"variables":[{"name":"v","expression":`+quoted(expression)+`}]`)
		validating("annotation "+expression, `"auditAnnotations":[{"key":"k","valueExpression":`+quoted(expression)+`}]`)
		validating("message "+expression, `"validations":[{"expression":"true","messageExpression":`+quoted(expression)+`}]`)
	}
	for name, fields := range map[string]string{
		"nothing": `"validations":[]`, "message with a line break": `"validations":[{"expression":"true","message":"a\nb"}]`, "message empty": `"validations":[{"expression":"true","message":" "}]`, "reason odd": `"validations":[{"expression":"true","reason":"Odd"}]`, "failure policy odd": `"failurePolicy":"Odd","validations":[{"expression":"true"}]`,
		"parameters odd": `"paramKind":{"apiVersion":"a/b/c","kind":""},"validations":[{"expression":"true"}]`, "parameters empty": `"paramKind":{},"validations":[{"expression":"true"}]`, "parameters used without kind": `"validations":[{"expression":"params.x == 1"}]`, "parameters used": `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"params.x == 1"}]`,
		"variables twice": `"variables":[{"name":"a","expression":"1"},{"name":"a","expression":"2"}],"validations":[{"expression":"true"}]`, "variable name odd": `"variables":[{"name":"a b","expression":"1"},{"name":"","expression":"1"},{"name":"for","expression":"1"}],"validations":[{"expression":"true"}]`, "variable before": `"variables":[{"name":"a","expression":"variables.b"},{"name":"b","expression":"1"}],"validations":[{"expression":"true"}]`, "variable after": `"variables":[{"name":"b","expression":"1"},{"name":"a","expression":"variables.b + 1"}],"validations":[{"expression":"variables.a == 2"}]`, "variable of another type": `"variables":[{"name":"b","expression":"1"}],"validations":[{"expression":"variables.b == 'x'"}]`,
		"conditions twice": `"matchConditions":[{"name":"a","expression":"true"},{"name":"a","expression":"true"}],"validations":[{"expression":"true"}]`, "condition name odd": `"matchConditions":[{"name":"a b","expression":"true"},{"name":"","expression":"true"}],"validations":[{"expression":"true"}]`, "condition on parameters": `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"matchConditions":[{"name":"a","expression":"params.x == 1"}],"validations":[{"expression":"true"}]`,
		"annotation key odd": `"auditAnnotations":[{"key":"a b","valueExpression":"'x'"},{"key":"","valueExpression":"'x'"}]`, "annotations twice": `"auditAnnotations":[{"key":"a","valueExpression":"'x'"},{"key":"a","valueExpression":"'y'"}]`, "annotation long": `"auditAnnotations":[{"key":"` + strings.Repeat("k", 70) + `","valueExpression":"'x'"}]`, "annotation null": `"auditAnnotations":[{"key":"a","valueExpression":"null"}]`, "annotation either": `"auditAnnotations":[{"key":"a","valueExpression":"object.x ? 'a' : null"}]`,
		"without constraints": `"matchConstraints":null,"validations":[{"expression":"true"}]`, "wild": `"matchConstraints":{"resourceRules":[{"operations":["*","CREATE"],"apiGroups":["*","a"],"apiVersions":["*"],"resources":["*","a/*","*/b"]}]},"validations":[{"expression":"true"}]`, "rules odd": `"matchConstraints":{"resourceRules":[{"operations":["ODD","CONNECT"],"apiGroups":[],"apiVersions":[""],"resources":["a//b"],"scope":"Odd"},{}]},"validations":[{"expression":"true"}]`,
	} {
		validating(name, fields)
	}
	mutating := func(name, fields string) {
		post("mutatingadmissionpolicies", "MutatingAdmissionPolicy", name, `{`+constraints+`,"reinvocationPolicy":"Never",`+fields+`}`)
	}
	for _, expression := range []string{
		``, `object`, `Object{}`, `Object{metadata: Object.metadata{labels: {'a': 'b'}}}`, `Object{metadata: Object.metadata{labels: {'a': 1}}}`, `Object{spec: Object.spec{x: 1, y: Object.spec.y{z: true}}}`, `Object{spec: Object.other{x: 1}}`, `Object{spec: {'x': 1}}`, `Object{metadata: Object.metadata{odd: 1}}`, `Object{kind: 'x'}`, `{'a': 'b'}`, `'text'`, `nonsense`, `Object{spec: object.spec}`, `params`, `object.x == 1 ? Object{} : Object{spec: Object.spec{a: 1}}`, `Object.spec{}`, `[JSONPatch{op: 'add', path: '/a', value: 1}]`,
		`[]`, `[JSONPatch{op: 'odd', path: '/a'}]`, `[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]`, `[JSONPatch{op: 'add', path: 'a', value: Object.spec{x: 1}}]`, `[JSONPatch{odd: 'add'}]`, `[JSONPatch{op: 1}]`, `[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('a/b~c'), value: null}]`, `JSONPatch{op: 'add'}`, `object.x ? [JSONPatch{op: 'remove', path: '/x'}] : []`, `[1]`,
	} {
		mutating("apply "+expression, `"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":`+quoted(expression)+`}}]`)
		mutating("patch "+expression, `"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":`+quoted(expression)+`}}]`)
	}
	for name, fields := range map[string]string{
		"nothing": `"mutations":[]`, "empty": `"mutations":[{}]`, "type odd": `"mutations":[{"patchType":"Odd"}]`, "of the other type": `"mutations":[{"patchType":"JSONPatch","applyConfiguration":{"expression":"Object{}"}}]`, "of both types": `"mutations":[{"patchType":"JSONPatch","applyConfiguration":{"expression":"Object{}"},"jsonPatch":{"expression":"[]"}}]`, "without type": `"mutations":[{"applyConfiguration":{"expression":"Object{}"}}]`,
		"reinvocation odd": `"reinvocationPolicy":"Odd","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}}]`, "failure policy odd": `"failurePolicy":"Odd","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}}]`,
		"variable of an object": `"variables":[{"name":"o","expression":"Object{spec: Object.spec{x: 1}}"}],"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"variables.o"}}]`,
		"on connect":            `"matchConstraints":{"resourceRules":[{"operations":["CONNECT"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods/exec"]}]},"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}}]`,
	} {
		mutating(name, fields)
	}
	for name, spec := range map[string]string{
		"nothing": `{}`, "name odd": `{"policyName":"Not Valid","validationActions":["Deny"]}`, "no actions": `{"policyName":"a"}`, "actions odd": `{"policyName":"a","validationActions":["Odd"]}`, "actions twice": `{"policyName":"a","validationActions":["Deny","Deny"]}`, "deny and warn": `{"policyName":"a","validationActions":["Deny","Warn"]}`, "all": `{"policyName":"a","validationActions":["Audit","Deny"]}`,
		"parameter empty": `{"policyName":"a","validationActions":["Deny"],"paramRef":{}}`, "parameter name and selector": `{"policyName":"a","validationActions":["Deny"],"paramRef":{"name":"a","selector":{},"parameterNotFoundAction":"Deny"}}`, "parameter without action": `{"policyName":"a","validationActions":["Deny"],"paramRef":{"name":"a"}}`, "parameter action odd": `{"policyName":"a","validationActions":["Deny"],"paramRef":{"name":"a","parameterNotFoundAction":"Odd"}}`, "parameter name odd": `{"policyName":"a","validationActions":["Deny"],"paramRef":{"name":"a/b","parameterNotFoundAction":"Deny"}}`, "parameter selector odd": `{"policyName":"a","validationActions":["Deny"],"paramRef":{"selector":{"matchLabels":{"-":"x"}},"parameterNotFoundAction":"Deny"}}`,
		"match odd": `{"policyName":"a","validationActions":["Deny"],"matchResources":{"matchPolicy":"Odd","namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Odd"}]},"resourceRules":[{}]}}`, "match empty": `{"policyName":"a","validationActions":["Deny"],"matchResources":{}}`,
	} {
		post("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", name, spec)
		post("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", name, strings.ReplaceAll(spec, `"validationActions"`, `"bogus"`))
	}
	return cases
}

// onPolicy makes a policy and bindings for the ConfigMaps of a namespace of its own, waits until the
// server acts on them (the policy refuses or changes a ConfigMap of the name "probe") and runs the rest.
func onPolicy(plural, kind, name, policy string, bindings []string, before, run func(session *Session, path string)) Case {
	id := fmt.Sprintf("policy-%08x", hash(plural+name))
	return Case{Kind: plural, Name: "effect " + name, Namespace: id, Run: func(session *Session) {
		path := "/api/v1/namespaces/" + id + "/configmaps"
		if before != nil {
			before(session, path)
		}
		constraints := `"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + id + `"}},"resourceRules":[{"operations":["*"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}`
		made := object("admissionregistration.k8s.io/v1", kind, id)
		made["spec"] = parsed(`{` + constraints + `,` + policy + `}`)
		session.Do(Request{Method: "POST", Path: registration + plural, Body: made})
		defer session.side.Send(Request{Method: "DELETE", Path: registration + plural + "/" + id})
		bound := strings.Replace(plural, "policies", "policybindings", 1)
		for i, binding := range bindings {
			made := object("admissionregistration.k8s.io/v1", kind+"Binding", fmt.Sprintf("%s-%d", id, i))
			made["spec"] = merged(map[string]any{"policyName": id}, parsed(binding))
			session.Do(Request{Method: "POST", Path: registration + bound, Body: made})
			defer session.side.Send(Request{Method: "DELETE", Path: registration + bound + fmt.Sprintf("/%s-%d", id, i)})
		}
		session.Until(Request{Method: "POST", Path: path, Query: "dryRun=All", Body: object("v1", "ConfigMap", "probe")}, func(answer Answer) bool {
			return answer.Code >= 400 || len(answer.Warnings) > 0 || Text(answer.Body, "metadata", "labels", "probe") != ""
		})
		run(session, path)
	}}
}

func configMap(name, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":` + data + `}`
}

// writes creates, changes and deletes ConfigMaps.
func writes(session *Session, path string) {
	for i, data := range []string{`{}`, `{"a":"1"}`, `{"a":"50"}`, `{"a":"text"}`, `{"b":"x"}`} {
		name := fmt.Sprintf("m%d", i)
		session.Do(Request{Method: "POST", Path: path, Body: configMap(name, data)})
		session.Do(Request{Method: "PATCH", Path: path + "/" + name, ContentType: mergePatch, Body: `{"data":{"a":"7"}}`})
		session.Do(Request{Method: "PATCH", Path: path + "/" + name, Query: "fieldManager=one&force=true", ContentType: applyPatch, Body: configMap(name, `{"a":"60"}`)})
		session.Do(Request{Method: "PATCH", Path: path + "/" + name, Query: "fieldManager=one&force=true&dryRun=All", ContentType: applyPatch, Body: configMap(name, `{"c":"60"}`)})
		session.Do(Request{Method: "DELETE", Path: path + "/" + name, Query: "dryRun=All"})
		session.Do(Request{Path: path + "/" + name})
	}
	session.Do(Request{Method: "DELETE", Path: path})
}

func validatingPolicyCases() []Case {
	var cases []Case
	on := func(name, policy, binding string, before func(*Session, string)) {
		cases = append(cases, onPolicy("validatingadmissionpolicies", "ValidatingAdmissionPolicy", name, policy, []string{binding}, before, writes))
	}
	probe := `{"expression":"object == null || object.metadata.name != 'probe'","message":"a probe"}`
	deny := `{"validationActions":["Deny"]}`
	validations := func(list string) string { return `"validations":[` + probe + `,` + list + `]` }
	on("plain", validations(`{"expression":"object == null || !has(object.data) || !('a' in object.data) || int(object.data.a) < 10"}`), deny, nil)
	on("message", validations(`{"expression":"object == null || !has(object.data) || !('a' in object.data) || object.data.a == '1'","message":"a must be 1"}`), deny, nil)
	on("message expression", validations(`{"expression":"object == null || object.data.a == '1'","message":"fallback","messageExpression":"'a is ' + object.data.a"}`), deny, nil)
	for _, reason := range []string{"Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"} {
		on("reason "+reason, validations(`{"expression":"object != null && object.data.?a.orValue('') == '1'","reason":"`+reason+`"}`), deny, nil)
	}
	on("warn", validations(`{"expression":"object != null && object.data.?a.orValue('') == '1'","message":"not 1"},{"expression":"request.operation != 'DELETE'"}`), `{"validationActions":["Warn","Audit"]}`, nil)
	on("ignore", `"failurePolicy":"Ignore",`+validations(`{"expression":"object.data.a == '1'"}`), deny, nil)
	on("old object", validations(`{"expression":"oldObject == null || object == null || object.data.?a == oldObject.data.?a","message":"a may not change"}`), deny, nil)
	on("conditions", `"matchConditions":[{"name":"not-delete","expression":"request.operation != 'DELETE'"},{"name":"small","expression":"!has(object.data) || object.data.?a.orValue('') != '50'"}],`+validations(`{"expression":"object.data.?a.orValue('') != '1'"}`), deny, nil)
	on("conditions that fail", `"matchConditions":[{"name":"broken","expression":"object.metadata.name == 'probe' || object.data.a == '1'"}],`+validations(`{"expression":"false"}`), deny, nil)
	on("variables", `"variables":[{"name":"a","expression":"object == null ? '' : object.?data.a.orValue('')"},{"name":"large","expression":"variables.a.size() > 1"}],`+validations(`{"expression":"!variables.large","messageExpression":"variables.a + ' is large'"}`), deny, nil)
	on("several that fail", validations(`{"expression":"false","message":"first"},{"expression":"false","message":"second"},{"expression":"object.data.x == 1"}`), deny, nil)
	on("request", validations(`{"expression":"request.userInfo.username == 'nobody'","messageExpression":"request.operation + ' ' + request.kind.kind + ' ' + request.resource.resource + ' ' + request.name + ' ' + request.namespace + ' ' + string(request.dryRun) + ' ' + request.requestKind.version"}`), deny, nil)
	on("namespace", validations(`{"expression":"namespaceObject.metadata.name == 'other'","messageExpression":"'in ' + namespaceObject.metadata.name + ' ' + namespaceObject.status.phase"}`), deny, nil)
	on("authorizer", validations(`{"expression":"!authorizer.group('').resource('configmaps').namespace('default').check('delete').allowed()"}`), deny, nil)
	on("costly", validations(`{"expression":"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a + b + c + d + e + f > 0))))))"}`), deny, nil)
	parameters := func(session *Session, path string) {
		session.side.Send(Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", Body: configMap("parity-limits", `{"max":"20"}`)})
	}
	kind := `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
	limited := validations(`{"expression":"object == null || int(object.?data.a.orValue('0')) < int(params.data.max)","messageExpression":"'at most ' + params.data.max"}`)
	on("parameters", kind+limited, `{"validationActions":["Deny"],"paramRef":{"name":"parity-limits","namespace":"default","parameterNotFoundAction":"Deny"}}`, parameters)
	on("parameters absent, deny", kind+validations(`{"expression":"params.data.max == '1'"}`), `{"validationActions":["Deny"],"paramRef":{"name":"parity-absent","namespace":"default","parameterNotFoundAction":"Deny"}}`, nil)
	on("parameters by label", kind+validations(`{"expression":"params.data.max == '1'","messageExpression":"params.metadata.name"}`), `{"validationActions":["Deny"],"paramRef":{"selector":{"matchLabels":{"parity":"none"}},"namespace":"default","parameterNotFoundAction":"Deny"}}`, nil)
	on("parameters not given", kind+validations(`{"expression":"params == null || true"},{"expression":"params.x == 1"}`), deny, nil)
	on("parameters of no kind", `"paramKind":{"apiVersion":"absent.example.com/v1","kind":"Absent"},`+validations(`{"expression":"true"}`), `{"validationActions":["Deny"],"paramRef":{"name":"x","parameterNotFoundAction":"Deny"}}`, nil)
	cases = append(cases, onPolicy("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "several bindings", validations(`{"expression":"object == null || object.data.?a.orValue('') == '1'"}`), []string{deny, `{"validationActions":["Warn"]}`, `{"validationActions":["Deny"],"matchResources":{"objectSelector":{"matchLabels":{"never":"seen"}}}}`}, nil, writes))
	return cases
}

func mutatingPolicyCases() []Case {
	var cases []Case
	on := func(name, policy string) {
		cases = append(cases, onPolicy("mutatingadmissionpolicies", "MutatingAdmissionPolicy", name, `"reinvocationPolicy":"Never",`+policy, []string{`{}`}, nil, writes))
	}
	mutations := func(list ...string) string {
		probe := `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'probe': 'seen'}}}"}}`
		return `"mutations":[` + strings.Join(append([]string{probe}, list...), ",") + `]`
	}
	applied := func(expression string) string {
		return `{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":` + quoted(expression) + `}}`
	}
	patched := func(expression string) string {
		return `{"patchType":"JSONPatch","jsonPatch":{"expression":` + quoted(expression) + `}}`
	}
	on("apply", mutations(applied(`Object{metadata: Object.metadata{annotations: {'by': 'policy'}}, data: {'z': 'added'}}`)))
	on("apply unset", mutations(applied(`Object{data: {'a': 'set by policy'}}`)))
	on("patch", mutations(patched(`[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/name'), value: object.metadata.name}]`)))
	on("patch several", mutations(patched(`[JSONPatch{op: 'add', path: '/data', value: {'only': 'this'}}, JSONPatch{op: 'copy', from: '/data/only', path: '/data/also'}, JSONPatch{op: 'test', path: '/data/also', value: 'this'}]`)))
	on("patch that fails", `"matchConditions":[{"name":"no-probe","expression":"true"}],`+mutations(patched(`object.metadata.name == 'probe' ? [] : [JSONPatch{op: 'remove', path: '/data/absent'}]`)))
	on("patch ignored", `"failurePolicy":"Ignore",`+mutations(patched(`object.metadata.name == 'probe' ? [] : [JSONPatch{op: 'remove', path: '/data/absent'}]`)))
	on("expression that fails", mutations(applied(`object.metadata.name == 'probe' ? Object{} : Object{data: {'n': object.data.absent}}`)))
	on("to another name", mutations(applied(`object.metadata.name == 'probe' ? Object{} : Object{metadata: Object.metadata{name: 'other'}}`)))
	on("of wrong type", mutations(patched(`object.metadata.name == 'probe' ? [] : [JSONPatch{op: 'add', path: '/data', value: 5}]`)))
	on("of unknown field", mutations(patched(`object.metadata.name == 'probe' ? [] : [JSONPatch{op: 'add', path: '/bogus', value: 5}]`)))
	on("conditions", `"matchConditions":[{"name":"some","expression":"object.metadata.name in ['probe', 'm1']"}],`+mutations(applied(`Object{data: {'matched': 'yes'}}`)))
	on("variables", `"variables":[{"name":"upper","expression":"object.metadata.name.upperAscii()"}],`+mutations(applied(`Object{data: {'upper': variables.upper}}`), patched(`[JSONPatch{op: 'add', path: '/data/again', value: variables.upper + object.data.upper}]`)))
	return cases
}
