// Comparing two transcripts: what must differ (names the servers choose, times) is levelled first,
// the rest is compared value by value.
package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Difference is one thing on which the two sides disagree.
type Difference struct {
	Kind, Case     string
	Step           int
	Aspect         string // code, reason, message, causes, warnings, object, managedFields, …
	Path           string // inside of the object, list indexes as []
	Ours, Upstream string
	Request        string
}

var wrapping = regexp.MustCompile(`^(items\[\]\.|\[\]\.object\.|rows\[\]\.object\.)+`)

// Signature says what differs, whether it was seen in an object, in a list or in a watch event;
// known.txt is matched against it.
func (d Difference) Signature() string {
	return strings.TrimSpace(d.Kind + " " + d.Aspect + " " + wrapping.ReplaceAllString(d.Path, ""))
}

var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|\[[^\]]*\]|\d+`)

// Shape is the signature with what was said, without names and numbers: differences of one shape
// most likely have one cause.
func (d Difference) Shape() string {
	switch d.Aspect {
	case "object", "managedFields":
		return d.Signature()
	}
	said := variable.ReplaceAllString(d.Upstream+" <> "+d.Ours, "*")
	return d.Signature() + " " + said[:min(len(said), 300)]
}

// etcdTooOld is in upstream's answer to a watch that wants the state first, when its etcd cannot
// report progress (before 3.4.31 and 3.5.13): then there is nothing to compare with.
const etcdTooOld = "the required storage feature RequestWatchProgress is disabled"

// Compare lists the differences of one case.
func Compare(c Case, ours, upstream Transcript) []Difference {
	var differences []Difference
	for step := range min(len(ours), len(upstream)) {
		a, b := ours[step], upstream[step]
		if strings.Contains(brief(b.Body), etcdTooOld) {
			continue
		}
		add := func(aspect, path string, left, right any) {
			differences = append(differences, Difference{
				Kind: c.Kind, Case: c.Name, Step: step, Aspect: aspect, Path: path,
				Ours: brief(left), Upstream: brief(right), Request: describe(b.Request),
			})
		}
		compareAnswers(a, b, c.Subset, add)
		if !c.Apart && (a.Code != b.Code || a.Error != b.Error) {
			// What follows builds on this step; comparing it would repeat the same difference.
			return differences
		}
	}
	if len(ours) != len(upstream) {
		differences = append(differences, Difference{
			Kind: c.Kind, Case: c.Name, Aspect: "steps",
			Ours: fmt.Sprint(len(ours)), Upstream: fmt.Sprint(len(upstream)),
		})
	}
	return differences
}

type adder func(aspect, path string, ours, upstream any)

func compareAnswers(ours, upstream Answer, subset bool, add adder) {
	if ours.Error != upstream.Error {
		add("transport", "", ours.Error, upstream.Error)
		return
	}
	left, right := level(document(ours.Body)), level(document(upstream.Body))
	if ours.Code != upstream.Code {
		add("code", "", fmt.Sprint(ours.Code, " ", message(left, ours)), fmt.Sprint(upstream.Code, " ", message(right, upstream)))
		return
	}
	if (ours.ETag == "") != (upstream.ETag == "") {
		add("etag", "", ours.ETag, upstream.ETag)
	}
	if ours.Encoding != upstream.Encoding {
		add("content-encoding", "", ours.Encoding, upstream.Encoding)
	}
	if ours.ContentType != upstream.ContentType {
		add("content-type", "", ours.ContentType, upstream.ContentType)
	}
	// What we add about kinds that nothing here acts on is ours alone.
	own := func(warning string) bool { return strings.Contains(warning, "\"coracle: ") }
	a, b := levelTexts(slices.DeleteFunc(slices.Clone(ours.Warnings), own)), levelTexts(upstream.Warnings)
	if !slices.Equal(a, b) {
		add("warnings", "", strings.Join(a, " | "), strings.Join(b, " | "))
	}
	if upstream.Code >= 400 && Text(right, "kind") == "Status" {
		compareStatus(left, right, add)
		return
	}
	if upstream.Body == nil || ours.Body == nil {
		if ours.ContentType == upstream.ContentType && strings.HasPrefix(upstream.ContentType, "text/") && levelText(ours.Text) != levelText(upstream.Text) {
			add("text", "", ours.Text, upstream.Text)
		} else if (upstream.Body == nil) != (ours.Body == nil) {
			add("body", "", left, right)
		}
		return
	}
	fields := func(path string, a, b any) {
		if strings.HasSuffix(path, "managedFields") || strings.Contains(path, "managedFields.") || strings.Contains(path, "managedFields[]") {
			add("managedFields", path[strings.Index(path, "managedFields"):], a, b)
			return
		}
		add("object", path, a, b)
	}
	diff("", left, right, subset, fields)
}

func message(body any, answer Answer) string {
	if text := Text(body, "message"); text != "" {
		return text
	}
	return answer.Text
}

func compareStatus(ours, upstream any, add adder) {
	for _, field := range []string{"reason", "message"} {
		if a, b := Text(ours, field), Text(upstream, field); a != b {
			add(field, "", a, b)
		}
	}
	for _, field := range []string{"kind", "group", "name", "retryAfterSeconds"} {
		if a, b := Get(ours, "details", field), Get(upstream, "details", field); brief(a) != brief(b) {
			add("details", field, a, b)
		}
	}
	a, b := causes(ours), causes(upstream)
	if !slices.Equal(a, b) {
		missing, extra := without(b, a), without(a, b)
		add("causes", "", strings.Join(extra, " | "), strings.Join(missing, " | "))
	}
}

// causes are compared as a set: upstream's own order follows its maps in places.
func causes(status any) []string {
	var texts []string
	list, _ := Get(status, "details", "causes").([]any)
	for _, cause := range list {
		texts = append(texts, Text(cause, "reason")+" "+levelText(Text(cause, "field")+": "+Text(cause, "message")))
	}
	sort.Strings(texts)
	return texts
}

func without(all, some []string) []string {
	var rest []string
	for _, text := range all {
		if !slices.Contains(some, text) {
			rest = append(rest, text)
		}
	}
	return rest
}

// diff reports each path at which two levelled documents differ. With subset, what only upstream
// has in the lists and maps of a discovery document is no difference (we serve fewer kinds).
func diff(path string, ours, upstream any, subset bool, add func(path string, ours, upstream any)) {
	switch right := upstream.(type) {
	case map[string]any:
		left, ok := ours.(map[string]any)
		if !ok {
			add(path, ours, upstream)
			return
		}
		for _, name := range keys(left, right) {
			a, inLeft := left[name]
			b, inRight := right[name]
			switch {
			case inLeft && inRight:
				diff(join(path, name), a, b, subset, add)
			case inLeft:
				add(join(path, name), a, absent)
			case !subset || !mayLack(path):
				add(join(path, name), absent, b)
			}
		}
	case []any:
		left, ok := ours.([]any)
		subset = subset && mayLack(path)
		if !ok || (len(left) != len(right) && !subset) {
			add(path, ours, upstream)
			return
		}
		if subset {
			diffNamed(path, left, right, add)
			return
		}
		for i := range right {
			diff(path+"[]", left[i], right[i], subset, add)
		}
	default:
		if brief(ours) != brief(upstream) {
			add(path, ours, upstream)
		}
	}
}

// mayLack says where an answer that may be smaller than upstream's may be so: in discovery
// anywhere, in an OpenAPI document by whole paths and schemas.
func mayLack(path string) bool {
	inDocument := false
	for _, part := range []string{"paths", "components", "definitions"} {
		inDocument = inDocument || path == part || strings.HasPrefix(path, part+".")
	}
	switch path {
	case "paths", "components.schemas", "definitions":
		return true
	}
	return !inDocument || strings.HasSuffix(path, "x-kubernetes-group-version-kind")
}

// withParameters puts the shared parameters of an OpenAPI v2 document where they are used: their
// names come from their descriptions.
func withParameters(value any, shared map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		name, found := strings.CutPrefix(Text(value, "$ref"), "#/parameters/")
		if found {
			return shared[name]
		}
		copied := make(map[string]any, len(value))
		for name, field := range value {
			copied[name] = withParameters(field, shared)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, entry := range value {
			copied[i] = withParameters(entry, shared)
		}
		return copied
	default:
		return value
	}
}

// document is the body of an answer, ready to be compared.
func document(body any) any {
	if Text(body, "openapi") != "" || Text(body, "swagger") != "" {
		body = withoutProse(body)
	}
	if Text(body, "swagger") == "" {
		return body
	}
	shared, _ := Get(body, "parameters").(map[string]any)
	whole := withParameters(body, shared).(map[string]any)
	delete(whole, "parameters")
	return whole
}

// withoutProse drops the descriptions of an OpenAPI document: they are prose; what they describe
// is compared.
func withoutProse(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, field := range value {
			if _, text := field.(string); text && name == "description" {
				continue
			}
			copied[name] = withoutProse(field)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, entry := range value {
			copied[i] = withoutProse(entry)
		}
		return copied
	default:
		return value
	}
}

// diffNamed compares lists of discovery entries by their name.
func diffNamed(path string, ours, upstream []any, add func(path string, ours, upstream any)) {
	byName := map[string]any{}
	for _, entry := range upstream {
		byName[entryName(entry)] = entry
	}
	for _, entry := range ours {
		name := entryName(entry)
		if other, ok := byName[name]; ok {
			diff(path+"["+name+"]", entry, other, true, add)
		} else {
			add(path+"["+name+"]", entry, absent)
		}
	}
}

func entryName(entry any) string {
	if text, ok := entry.(string); ok {
		return text
	}
	if name := Text(entry, "name"); name != "" {
		return strings.TrimSpace(name + " " + Text(entry, "in"))
	}
	if kind := Text(entry, "kind"); kind != "" && Text(entry, "version") != "" {
		return Text(entry, "group") + "/" + Text(entry, "version") + "/" + kind
	}
	for _, path := range [][]string{{"groupVersion"}, {"version"}, {"metadata", "name"}, {"resource"}, {"subresource"}, {"type"}, {"$ref"}} {
		if name := Text(entry, path...); name != "" {
			return name
		}
	}
	return "-"
}

type missing struct{}

var absent = missing{}

func (missing) MarshalJSON() ([]byte, error) { return []byte(`"(absent)"`), nil }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func keys(maps ...map[string]any) []string {
	var all []string
	for _, m := range maps {
		for name := range m {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	sort.Strings(all)
	return all
}

func brief(value any) string {
	if text, ok := value.(string); ok {
		return cut(text)
	}
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return cut(strings.TrimSuffix(encoded.String(), "\n"))
}

func cut(text string) string {
	if len(text) > 6000 {
		return text[:6000] + "…"
	}
	return text
}

func describe(request Request) string {
	method := request.Method
	if method == "" {
		method = "GET"
	}
	text := method + " " + request.Path
	if request.Query != "" {
		text += "?" + request.Query
	}
	if request.ContentType != "" {
		text += " (" + request.ContentType + ")"
	}
	if request.Body != nil {
		text += " " + brief(request.Body)
	}
	return text
}

// chosenBySide are fields whose values each server makes up; only their presence is compared.
var chosenBySide = map[string]bool{
	"uid": true, "resourceVersion": true, "creationTimestamp": true, "deletionTimestamp": true,
	"continue": true, "token": true, "time": true,
}

var levelling = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	// The second range is that of the sample ServiceCIDRs, which upstream's allocator takes up.
	{regexp.MustCompile(`10\.192\.\d+\.\d+|192\.168\.10[01]\.\d+$`), "<service ip>"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-<random>"},
	{regexp.MustCompile(`generated-[a-z0-9]{5}`), "generated-<random>"},
	{regexp.MustCompile(`\{(TCP|UDP|SCTP) 3\d{4}\}`), "{$1 <port>}"},
	// What may not change is shown whole, as Go prints its internal types.
	{regexp.MustCompile(`Invalid value: [\[{].*[\]}]: (field is immutable|must have exactly one node selector term)`), "Invalid value: <structure>: $1"},
	{regexp.MustCompile(`in record \(\d+\)`), "in record (<revision>)"},
	{regexp.MustCompile(`in object meta: \d+`), "in object meta: <revision>"},
	{regexp.MustCompile(`nodePort:3\d{4}`), "nodePort:<port>"},
	{regexp.MustCompile(`nodePort: Duplicate value: \d+`), "nodePort: Duplicate value: <port>"},
	{regexp.MustCompile(`current: \d+`), "current: <revision>"},
	{regexp.MustCompile(`\(\d+\)$`), "(<revision>)"},
	{regexp.MustCompile(`Bad_[a-z0-9]{5}`), "Bad_<random>"},
	{regexp.MustCompile(`g{40,}[a-z0-9]{5}`), "ggg<random>"},
	{regexp.MustCompile(`(https://)?\d+\.\d+\.\d+\.\d+:\d{4,5}`), "<server>"},
	{regexp.MustCompile(`\?hash=[0-9A-Fa-f]+`), "?hash=<digest>"},
	// Which of the default classes that other cases make is the newest is a race.
	{regexp.MustCompile(`\b[cu]\d+-[0-9a-f]{8}\b`), "<name>"},
	{regexp.MustCompile(`X509SHA256=[0-9a-f]{64}`), "X509SHA256=<digest>"},
	// The whole object, with its revision, or a part of it.
	{regexp.MustCompile(`patch: Invalid value: "(?:[^"\\]|\\.)*"`), `patch: Invalid value: "<object>"`},
	// Upstream appends a printout of Go structures that differ.
	{regexp.MustCompile(`(?s)((?:may not change fields other than|is immutable after creation|may not modify a condition) [^\n]*).*`), "$1"},
	{regexp.MustCompile(`(?s)(is immutable after creation)\n.*`), "$1"},
	// The type of the object itself is named after the time.
	{regexp.MustCompile(`\bselfType\d+`), "selfType"},
	// Go names a scheme after the line that made it, which depends on how it was built.
	{regexp.MustCompile(`in scheme "[^"]*"`), `in scheme "<scheme>"`},
}

// variableHints: a text without digits and without any of these has nothing to level.
var variableHints = []string{"alue: ", "generated-", "kube-api-access-", "Bad_", "gggg", "may not", "immutable", "in scheme"}

func hasVariables(text string) bool {
	if strings.ContainsAny(text, "0123456789") {
		return true
	}
	return slices.ContainsFunc(variableHints, func(hint string) bool { return strings.Contains(text, hint) })
}

func levelText(text string) string {
	if !hasVariables(text) {
		return text
	}
	text = levelStructures(text)
	for _, rule := range levelling {
		text = rule.pattern.ReplaceAllString(text, rule.with)
	}
	return text
}

var shownStructure = regexp.MustCompile(`(Invalid|Unsupported|Duplicate) value: [\[{]`)

// levelStructures rewrites the structures that errors show: Go prints internal types, whose fields
// have other names and another order, and which also show what is not set.
func levelStructures(text string) string {
	var levelled strings.Builder
	for {
		found := shownStructure.FindStringIndex(text)
		if found == nil {
			levelled.WriteString(text)
			return levelled.String()
		}
		start := found[1] - 1
		decoder := json.NewDecoder(strings.NewReader(text[start:]))
		decoder.UseNumber()
		var value any
		levelled.WriteString(text[:start])
		if decoder.Decode(&value) != nil {
			levelled.WriteString(text[start:])
			return levelled.String()
		}
		levelled.WriteString(brief(plain(value)))
		text = text[start+int(decoder.InputOffset()):]
	}
}

// plain folds the names of fields and leaves out what is not set.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := map[string]any{}
		for name, field := range value {
			field = plain(field)
			switch text := brief(field); text {
			case "null", "{}", "[]", "", "0", "false":
			default:
				fields[strings.ToLower(name)] = field
			}
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = plain(item)
		}
		return items
	default:
		return value
	}
}

func levelTexts(texts []string) []string {
	var levelled []string
	for _, text := range texts {
		levelled = append(levelled, levelText(text))
	}
	sort.Strings(levelled)
	return levelled
}

func soleReference(field any) any {
	if list, ok := field.([]any); ok && len(list) == 1 {
		return Get(list[0], "$ref")
	}
	return nil
}

// isProse tells a table column and a schema from an object that has a field of that name.
func isProse(value map[string]any) bool {
	_, column := value["priority"]
	for _, mark := range []string{"type", "$ref", "allOf", "responses", "parameters"} {
		if _, schema := value[mark]; schema {
			return true
		}
	}
	_, in := value["in"]
	_, content := value["content"]
	return column || in || content || len(value) == 1
}

var age = regexp.MustCompile(`^(\d+[smhd])+$|^<invalid>$`)

func levelCells(cells any) any {
	list, ok := level(cells).([]any)
	if !ok {
		return cells
	}
	for i, cell := range list {
		if text, ok := cell.(string); ok && age.MatchString(text) {
			list[i] = "<age>"
		}
	}
	return list
}

// sorted is for lists that come out of a Go map.
func sorted(list any) any {
	entries, ok := level(list).([]any)
	if ok {
		sort.Slice(entries, func(i, j int) bool { return brief(entries[i]) < brief(entries[j]) })
		return entries
	}
	return list
}

// level returns a copy in which what each server chooses for itself reads the same.
func level(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, field := range value {
			text, isText := field.(string)
			switch {
			case chosenBySide[name] && isText && text != "":
				copied[name] = "<" + name + ">"
			case name == "nodePort" || name == "healthCheckNodePort":
				copied[name] = "<port>"
			case name == "allOf" && soleReference(field) != nil:
				// A reference beside a description must be wrapped; without one it need not be.
				copied["$ref"] = soleReference(field)
			case name == "description" && isProse(value):
				// Descriptions are prose; what they describe is compared.
			case name == "resourceRules" || name == "nonResourceRules":
				copied[name] = sorted(field)
			case name == "managedFields":
				copied[name] = byOwner(level(field))
			case name == "conditions" && condition(map[string]any{"status": value}, "NamesAccepted") != "":
				// Several controllers add them, each in its time.
				copied[name] = sorted(field)
			case name == "cells":
				copied[name] = levelCells(field)
			default:
				copied[levelText(name)] = level(field)
			}
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, entry := range value {
			copied[i] = level(entry)
		}
		return copied
	case string:
		return levelText(value)
	default:
		return value
	}
}

// byOwner sorts the owners of an object: their own order depends on when each second began.
func byOwner(owners any) any {
	list, ok := owners.([]any)
	if !ok {
		return owners
	}
	name := func(owner any) string {
		return Text(owner, "operation") + " " + Text(owner, "manager") + " " + Text(owner, "subresource")
	}
	sort.SliceStable(list, func(i, j int) bool { return name(list[i]) < name(list[j]) })
	return list
}
