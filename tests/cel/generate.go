// Expressions made at random, most of them well typed, some with a mistake in them.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// generated makes cases from a seed.
func generated(seed uint64, count int) []Case {
	maker := &maker{random: rand.New(rand.NewPCG(seed, 0))}
	cases := make([]Case, count)
	for index := range cases {
		maker.scope = nil
		kind := maker.pick("bool", "bool", "bool", "int", "string", "double", "list(int)", "list(string)",
			"map(string, int)", "duration", "timestamp", "uint", "bytes", "dyn", "quantity", "optional(int)", "ip", "cidr", "url", "semver")
		cases[index] = Case{
			Name:    fmt.Sprintf("generated/%d", index),
			Expr:    maker.expression(kind, 1+maker.random.IntN(4)),
			Declare: generatedTypes,
			Vars:    generatedValues,
		}
	}
	return cases
}

var generatedTypes = map[string]string{
	"flag": "bool", "count": "int", "total": "uint", "ratio": "double", "name": "string", "data": "bytes",
	"wait": "duration", "when": "timestamp", "numbers": "list(int)", "names": "list(string)",
	"counts": "map(string, int)", "self": "dyn", "labels": "map(string, string)",
}

var generatedValues = map[string]json.RawMessage{
	"flag": json.RawMessage(`true`), "count": json.RawMessage(`42`), "total": json.RawMessage(`{"$uint":"7"}`),
	"ratio": json.RawMessage(`2.5`), "name": json.RawMessage(`"näme-1"`), "data": json.RawMessage(`{"$bytes":"YWJj"}`),
	"wait": json.RawMessage(`{"$duration":"1h30m"}`), "when": json.RawMessage(`{"$timestamp":"2024-02-29T12:30:45.5Z"}`),
	"numbers": json.RawMessage(`[3,1,2,2]`), "names": json.RawMessage(`["b","a","ab"]`),
	"counts": json.RawMessage(`{"a":1,"b":2}`), "labels": json.RawMessage(`{"app":"web","tier":"front"}`),
	"self": json.RawMessage(`{"a":1,"b":"x","c":[1,"y",2.5,null],"d":{"e":true,"f":{"$uint":"3"}},"n":null}`),
}

type maker struct {
	random *rand.Rand
	// The variables of the comprehensions around the place, with their types.
	scope []variable
}

type variable struct{ name, kind string }

func (maker *maker) pick(from ...string) string { return from[maker.random.IntN(len(from))] }

// expression makes one of a type; one in thirty is of another type.
func (maker *maker) expression(kind string, depth int) string {
	if maker.random.IntN(30) == 0 {
		kind = maker.pick("bool", "int", "string", "dyn", "list(int)", "double")
	}
	if depth <= 0 || maker.random.IntN(8) == 0 {
		return maker.leaf(kind)
	}
	if maker.random.IntN(14) == 0 {
		return fmt.Sprintf("(%s ? %s : %s)", maker.expression("bool", depth-1), maker.expression(kind, depth-1), maker.expression(kind, depth-1))
	}
	return maker.composed(kind, depth-1)
}

func (maker *maker) leaf(kind string) string {
	for _, known := range maker.scope {
		if known.kind == kind && maker.random.IntN(2) == 0 {
			return known.name
		}
	}
	switch kind {
	case "bool":
		return maker.pick("true", "false", "flag")
	case "int":
		return maker.pick("0", "1", "2", "-1", "7", "count", "9223372036854775807", "-9223372036854775808", "0x1F", "100")
	case "uint":
		return maker.pick("0u", "1u", "5u", "total", "18446744073709551615u")
	case "double":
		return maker.pick("0.0", "1.5", "-2.25", "ratio", "1e10", "1e-7", "double('NaN')", "double('-inf')", "3.0")
	case "string":
		return maker.pick(`""`, `"a"`, `'näme-1'`, "name", `"Hello, World"`, `"10.0.0.1"`, `"1Gi"`, `"https://a.b:80/c?d=e"`, `"1.2.3"`, `r"\d+"`, `"2024-01-01T00:00:00Z"`, `"1h"`, `"\u00e9\n"`)
	case "bytes":
		return maker.pick(`b""`, `b"abc"`, "data", `b'\xff\x00'`)
	case "duration":
		return maker.pick(`duration("1h")`, `duration("-1.5s")`, "wait", `duration("0s")`, `duration("250ms")`)
	case "timestamp":
		return maker.pick(`timestamp("2024-01-01T00:00:00Z")`, "when", `timestamp("1970-01-01T00:00:00.123456789Z")`, `timestamp("2000-06-15T10:20:30+02:00")`)
	case "list(int)":
		return maker.pick("[]", "[1, 2, 3]", "numbers", "[3, 1, 2]", "[1, 1]")
	case "list(string)":
		return maker.pick("[]", `["a", "b"]`, "names", `["x"]`)
	case "map(string, int)":
		return maker.pick("{}", `{"a": 1}`, "counts", `{"x": 1, "y": 2}`)
	case "quantity":
		return maker.pick(`quantity("1")`, `quantity("1Gi")`, `quantity("500m")`, `quantity("-3k")`, `quantity("1.5e3")`)
	case "optional(int)":
		return maker.pick("optional.none()", "optional.of(3)", "self.?a", `counts[?"a"]`, `counts[?"z"]`, "optional.ofNonZeroValue(0)")
	case "ip":
		return maker.pick(`ip("10.0.0.1")`, `ip("::1")`, `ip("fe80::1:2")`, `ip("224.0.0.9")`, `ip("0.0.0.0")`, `ip("2001:DB8::0")`, `ip("01.2.3.4")`, `ip("::ffff:1.2.3.4")`)
	case "cidr":
		return maker.pick(`cidr("10.0.0.0/8")`, `cidr("10.1.2.3/24")`, `cidr("::/0")`, `cidr("fd00::1/64")`, `cidr("0.0.0.0/0")`, `cidr("1.2.3.4/033")`)
	case "url":
		return maker.pick(`url("https://u:p@a.b:80/c%20d?x=1&y=%20&x=2#f")`, `url("/a/b;c?q")`, `url("http://[::1%25e]:8/")`, `url("mailto:a@b")`, `url("http://h:x/")`, `url("/%zz")`)
	case "semver":
		return maker.pick(`semver("1.2.3")`, `semver("1.2.3-alpha.1+b")`, `semver("v01.2", true)`, `semver("1.2.3-rc.10")`, `semver("1.2")`)
	case "format":
		return "format." + maker.pick("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime") + "()"
	case "pattern":
		return maker.pick(`"[a-z]+"`, `"a*"`, `"(?i)[A-F\\d]+"`, `r"\bn.*\b"`, `"[[:alpha:]]{2,3}"`, `r"\pL|\PN"`, `"(?P<x>a)|b$"`, `"a**"`, `"[b-a]"`, `r"\Qa.b\E"`, `"x{1001}"`, `"a{,2}"`, `r"[^\W_]+?"`, `"("`)
	}
	return maker.pick("self", "self.a", "self.b", "self.c", "self.d.e", "self.d.f", "self.n", "self.missing", "self.c[2]", "dyn(1)", `dyn("a")`, "null", "self.d")
}

// shapes are ways to make an expression of a type; {type} stands for an expression of that type.
var shapes = map[string][]string{
	"bool": {
		"{quantity}.isLessThan({quantity})", "{ip}.isUnspecified()", "{ip}.isLinkLocalMulticast()", "{ip}.isLinkLocalUnicast()", "{ip}.isGlobalUnicast()", "{ip}.isLoopback()", "{ip} == {ip}", "{cidr} == {cidr}", "{cidr}.containsIP({ip})", "{cidr}.containsCIDR({cidr})", "{cidr}.containsCIDR({string})", "{url} == {url}", "{semver} == {semver}", "{semver}.isLessThan({semver})", "{semver}.isGreaterThan({semver})", "isSemver({string}, {bool})", "{list(string)}.isSorted()", "[{duration}, {duration}].isSorted()", "[{double}, {double}].max() == {double}", "{list(string)}.exists($i, $s, {bool})", "{list(int)}.existsOne($i, $, {bool})", "[{quantity}, {quantity}] == [{quantity}, {quantity}]", "{format} == {format}", "{format}.validate({string}).hasValue()", "sets.intersects({list(string)}, {list(string)})", "{string}.matches({pattern})",
		"{bool} && {bool}", "{bool} || {bool}", "!{bool}", "({int} == {int})", "{int} < {int}", "{int} >= {int}",
		"{string} == {string}", "{string} != {string}", "{string} < {string}", "{double} <= {double}", "{int} > {double}",
		"{uint} < {int}", "{dyn} == {dyn}", "{dyn} == {int}", "{dyn} > {int}", "{int} in {list(int)}", "{string} in {map(string, int)}",
		"{string} in {list(string)}", "{string}.contains({string})", "{string}.startsWith({string})", "{string}.endsWith({string})",
		"{string}.matches({string})", `{string}.matches("^[a-z]+-?\\d*$")`, "has(self.a)", "has(self.missing)", "has(self.d.e)",
		"{list(int)}.all($, {bool})", "{list(int)}.exists($, {bool})", "{list(int)}.exists_one($, {bool})", "{list(string)}.all($s, {bool})",
		"{map(string, int)}.all($s, {bool})", "{list(int)} == {list(int)}", "{map(string, int)} == {map(string, int)}",
		"{duration} < {duration}", "{timestamp} > {timestamp}", "{bytes} == {bytes}", "{list(int)}.isSorted()", "isQuantity({string})",
		"{quantity}.isGreaterThan({quantity})", "{quantity} == {quantity}", "{quantity}.isInteger()", "isIP({string})", "isCIDR({string})", "isURL({string})",
		"{optional(int)}.hasValue()", "sets.contains({list(int)}, {list(int)})", "sets.intersects({list(int)}, {list(int)})",
		"sets.equivalent({list(int)}, {list(int)})", "isSemver({string})", "type({dyn}) == int", "type({int}) == type({dyn})",
		"{list(int)}.all($i, $j, $i < $j)", "{map(string, int)}.exists($s, $, {bool})", "ip.isCanonical({string})", "!format.dns1123Label().validate({string}).hasValue()",
		`cidr("10.0.0.0/8").containsIP({string})`, `ip("10.0.0.1").isLoopback()`, `semver("1.2.3").isLessThan(semver("1.10.0"))`, "bool({string})", "{bool} == {bool}", "{dyn}",
	},
	"int": {
		"sign({quantity})", "{semver}.compareTo({semver})", "{semver}.minor()", "{semver}.patch()", "{semver}.major()", "{ip}.family()", "{cidr}.prefixLength()", "{string}.indexOf({string}, {int})", "{string}.lastIndexOf({string}, {int})", "[{uint}, {uint}].sum() == 3u ? {int} : 2", "{list(int)}.first().orValue({int})", "{list(int)}.last().orValue({int})", "size({url}.getQuery())", "[{string}, {string}].indexOf({string})",
		"{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} / {int}", "{int} % {int}", "-{int}", "size({string})", "size({list(int)})",
		"{string}.size()", "{list(int)}.size()", "{map(string, int)}.size()", "size({bytes})", "{list(int)}[{int}]", "{list(int)}[0]", `{map(string, int)}["a"]`, "counts.a",
		"int({double})", "int({uint})", "int({string})", "int({timestamp})", "{timestamp}.getFullYear()", "{timestamp}.getMonth()", "{timestamp}.getDate()",
		"{timestamp}.getDayOfWeek()", "{timestamp}.getDayOfYear()", `{timestamp}.getHours("America/New_York")`, `{timestamp}.getMinutes("-02:30")`,
		"{duration}.getSeconds()", "{duration}.getHours()", "{duration}.getMilliseconds()", "{list(int)}.sum()", "{list(int)}.min()", "{list(int)}.max()",
		"{list(int)}.indexOf({int})", "{list(int)}.lastIndexOf({int})", "{string}.indexOf({string})", "{string}.lastIndexOf({string})",
		"{optional(int)}.orValue({int})", "{optional(int)}.value()", "{quantity}.sign()", "{quantity}.compareTo({quantity})", "{quantity}.asInteger()",
		"cel.bind(v, {int}, v + v)", `semver("1.2.3").major()`, `ip("10.0.0.1").family()`, `cidr("10.1.0.0/16").prefixLength()`, "{list(int)}.map($, {int})[0]",
	},
	"uint":   {"{uint} + {uint}", "{uint} - {uint}", "{uint} * {uint}", "{uint} / {uint}", "{uint} % {uint}", "uint({int})", "uint({double})", "uint({string})"},
	"double": {"{double} + {double}", "{double} - {double}", "{double} * {double}", "{double} / {double}", "-{double}", "double({int})", "double({string})", "double({uint})", "{quantity}.asApproximateFloat()"},
	"string": {
		"string({ip})", "string({cidr})", "{url}.getScheme()", "{url}.getHostname()", "{url}.getPort()", "{url}.getEscapedPath()", "{string}.find({pattern})", "{list(string)}.min()", "{list(string)}.max()", "{string}.substring({int}, {int})", `"%f %e %o %X %s".format([{double}, {double}, {int}, {string}, {bytes}])`, `"%d %s %s".format([{uint}, {timestamp}, [{dyn}]])`, "{string}.format([{dyn}])", "{format}.validate({string}).orValue([{string}])[0]",
		"{string} + {string}", "string({int})", "string({double})", "string({bool})", "string({duration})", "string({timestamp})", "string({uint})", "string({bytes})",
		"{string}.lowerAscii()", "{string}.upperAscii()", "{string}.trim()", "{string}.replace({string}, {string})", "{string}.replace({string}, {string}, {int})",
		"{string}.substring({int})", "{string}.substring(0, {int})", "{string}.charAt({int})", `{list(string)}.join({string})`, "{list(string)}.join()", "{list(string)}[0]",
		`"%s and %d".format([{string}, {int}])`, `"%.3f|%e|%x|%b|%s".format([{double}, {double}, {int}, {int}, {dyn}])`, `"%s".format([{list(int)}])`, `"%s %s".format([{map(string, int)}, {duration}])`,
		`{string}.find("[a-z]+")`, `url("https://a.b:80/c?d=e").getHost()`, `strings.quote({string})`, "labels.app", `labels[{string}]`, `string(ip("::1"))`, `string(cidr("10.0.0.0/8").masked())`,
	},
	"bytes":            {"bytes({string})", "{bytes} + {bytes}"},
	"duration":         {"{duration} + {duration}", "{duration} - {duration}", "{timestamp} - {timestamp}", "duration({string})"},
	"timestamp":        {"{timestamp} + {duration}", "{timestamp} - {duration}", "timestamp({string})", "timestamp({int})"},
	"list(int)":        {"[{list(int)}, {list(int)}].flatten(1)", "{list(int)}.slice({int}, {int})", "[{optional(int)}, {optional(int)}].unwrapOpt()", "optional.unwrap([{optional(int)}])", "lists.range({int} % 20)", "{list(int)}.sortBy($, $ % 2)", "[{int}, {int}]", "{list(int)} + {list(int)}", "{list(int)}.filter($, {bool})", "{list(int)}.map($, {int})", "{list(int)}.map($, {bool}, {int})", "[?{optional(int)}, {int}]", "{list(int)}.transformList($i, $, {int})", "{list(int)}.slice(0, {int})", "{list(int)}.distinct()", "{list(int)}.sort()", "{list(int)}.reverse()", "[{list(int)}, {list(int)}].flatten()", "lists.range(size({string}))", "{list(int)}.sortBy($, -$)"},
	"list(string)":     {"{string}.findAll({pattern})", "{string}.findAll({pattern}, {int})", "{list(string)}.distinct()", "{list(string)}.reverse()", "{list(string)}.sortBy($s, {int})", "{url}.getQuery().map($s, $s)", "{map(string, int)}.transformList($s, $, $s)", "[{string}, {string}]", "{list(string)} + {list(string)}", "{list(string)}.filter($s, {bool})", "{list(string)}.map($s, {string})", "{string}.split({string})", "{string}.split({string}, {int})", "{map(string, int)}.map($s, $s)", `{string}.findAll("[a-z]")`, "{list(string)}.sort()"},
	"map(string, int)": {"{{string}: {int}}", `{"a": {int}, "b": {int}}`, `{?"a": {optional(int)}}`, "{map(string, int)}.transformMap($s, $, {int})", "{list(int)}.transformMapEntry($i, $, {{string}: {int}})"},
	"quantity":         {"{quantity}.add({quantity})", "{quantity}.sub({quantity})", "quantity({string})", "{quantity}.add({int})", "{quantity}.sub({int})"},
	"optional(int)":    {"optional.of({int})", "optional.ofNonZeroValue({int})", "{optional(int)}.or({optional(int)})", "{list(int)}[?{int}]", `{map(string, int)}[?{string}]`, "{optional(int)}.optMap($, {int})", "{optional(int)}.optFlatMap($, {optional(int)})"},
	"ip":               {"ip({string})", "{cidr}.ip()"},
	"cidr":             {"cidr({string})", "{cidr}.masked()"},
	"url":              {"url({string})"},
	"semver":           {"semver({string})", "semver({string}, {bool})"},
	"format":           {"format.named({string}).orValue({format})"},
	"pattern":          {"{pattern} + {pattern}", "{string}"},
	"dyn":              {"dyn({int})", "dyn({string})", "dyn({list(int)})", "[{dyn}, {dyn}]", "{dyn}.a", "{dyn}[0]", `{dyn}["b"]`, "{dyn} + {dyn}", "{dyn}.map($, {dyn})", "{dyn}.?a", `{"k": {dyn}}`},
}

// composed fills a shape. $ is a new variable of type int, $s of type string, $i and $j of type int.
func (maker *maker) composed(kind string, depth int) string {
	options := shapes[kind]
	if len(options) == 0 {
		return maker.leaf(kind)
	}
	shape := options[maker.random.IntN(len(options))]
	before := len(maker.scope)
	number := before
	replace := func(mark, name, kind string) {
		if strings.Contains(shape, mark) {
			shape = strings.ReplaceAll(shape, mark, name)
			maker.scope = append(maker.scope, variable{name, kind})
		}
	}
	replace("$s", fmt.Sprintf("s%d", number), "string")
	replace("$i", fmt.Sprintf("i%d", number), "int")
	replace("$j", fmt.Sprintf("j%d", number), "int")
	replace("$", fmt.Sprintf("v%d", number), "int")
	var text strings.Builder
	for shape != "" {
		start := strings.IndexByte(shape, '{')
		if start < 0 {
			break
		}
		end, kind := holeAt(shape[start:])
		if kind == "" {
			text.WriteString(shape[:start+1])
			shape = shape[start+1:]
			continue
		}
		text.WriteString(shape[:start])
		text.WriteString(maker.expression(kind, depth))
		shape = shape[start+end:]
	}
	text.WriteString(shape)
	maker.scope = maker.scope[:before]
	made := text.String()
	if kind == "bool" || kind == "int" || kind == "double" || kind == "dyn" {
		return "(" + made + ")"
	}
	return made
}

// holeAt reads "{kind}" at the beginning of a text, if it is one.
func holeAt(text string) (int, string) {
	end := strings.IndexByte(text, '}')
	if end < 0 {
		return 0, ""
	}
	kind := text[1:end]
	if _, ok := shapes[kind]; !ok {
		return 0, ""
	}
	return end + 1, kind
}
