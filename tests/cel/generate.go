// Expressions made at random, most of them well typed, some with a mistake in them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
)

// generate prints expressions, to see what they are like.
func generate(arguments []string) int {
	flags := flag.NewFlagSet("generate", flag.ExitOnError)
	count := flags.Int("generated", 100, "how many expressions are generated")
	seed := flags.Uint64("seed", 1, "what they are generated from")
	flags.Parse(arguments)
	for _, made := range generated(*seed, *count) {
		fmt.Printf("%q\n", made.Expr)
	}
	return 0
}

// generated makes cases from a seed.
func generated(seed uint64, count int) []Case {
	maker := &maker{random: rand.New(rand.NewPCG(seed, 0))}
	cases := make([]Case, count)
	for index := range cases {
		maker.scope = nil
		kind := maker.pick("bool", "bool", "bool", "int", "string", "double", "list(int)", "list(string)",
			"map(string, int)", "duration", "timestamp", "uint", "bytes", "dyn", "quantity", "optional(int)", "ip", "cidr", "url", "semver",
			"Scale", "list(Port)", "decision", "optional(string)", "list(double)", "list(duration)")
		made := Case{
			Name:    fmt.Sprintf("generated/%d", index),
			Expr:    maker.expression(kind, 1+maker.random.IntN(4)),
			Declare: generatedTypes,
			Vars:    generatedValues,
			Objects: generatedObjects,
		}
		if maker.random.IntN(2) == 0 {
			made.With = []string{"bind", "jsonpatch"}
		}
		if maker.random.IntN(2) == 0 {
			made.Sizes = generatedSizes
		}
		switch maker.random.IntN(20) {
		case 0, 1:
			made.Version = maker.pick("1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.36")
		case 2:
			made.Expr = maker.damaged(made.Expr)
		}
		cases[index] = made
	}
	return cases
}

// damaged makes a mistake in an expression, as a hand would: a character that is missing, doubled,
// replaced or one too many.
func (maker *maker) damaged(text string) string {
	characters := []rune(text)
	if len(characters) == 0 {
		return text
	}
	place := maker.random.IntN(len(characters))
	other := []rune(maker.pick("(", ")", "[", "]", "{", "}", ",", ".", "?", ":", "+", "-", "!", "=", "&", "|", "'", "\"", "\\", " ", "a", "1", "$", "é", "`"))
	switch maker.random.IntN(4) {
	case 0:
		characters = append(characters[:place:place], characters[place+1:]...)
	case 1:
		characters = append(characters[:place+1:place+1], characters[place:]...)
	case 2:
		characters = append(append(characters[:place:place], other...), characters[place+1:]...)
	case 3:
		characters = append(append(characters[:place:place], other...), characters[place:]...)
	}
	return string(characters)
}

var generatedTypes = map[string]string{
	"flag": "bool", "count": "int", "total": "uint", "ratio": "double", "name": "string", "data": "bytes",
	"wait": "duration", "when": "timestamp", "numbers": "list(int)", "names": "list(string)",
	"counts": "map(string, int)", "self": "dyn", "labels": "map(string, string)",
	"scale": "Scale", "authorizer": "authorizer", "address": "ip", "size": "quantity",
	"ratios": "list(double)", "waits": "list(duration)",
}

// Objects as schemas declare them.
var generatedObjects = map[string]map[string]string{
	"Scale": {
		"replicas": "int", "name": "string", "paused": "bool", "factor": "double", "tags": "list(string)",
		"limits": "map(string, int)", "ports": "list(Port)", "default": "Port", "since": "timestamp",
		"grace": "duration", "any": "dyn", "parts": "map(string, Port)", "data": "bytes",
	},
	"Port": {"name": "string", "port": "int", "open": "bool", "next": "Port"},
}

// What the schemas say of sizes.
var generatedSizes = map[string]uint64{
	"numbers": 20, "names": 10, "names.@items": 63, "name": 253, "counts": 8, "counts.@keys": 30, "labels": 64,
	"labels.@keys": 300, "labels.@values": 63, "scale.name": 63, "scale.tags": 5, "scale.tags.@items": 12,
	"scale.ports": 1000, "scale.ports.@items.name": 15, "scale.limits": 100, "scale.parts": 50, "self.b": 40,
	"scale.data": 4096, "data": 512, "waits": 7,
}

var generatedValues = map[string]json.RawMessage{
	"flag": json.RawMessage(`true`), "count": json.RawMessage(`42`), "total": json.RawMessage(`{"$uint":"7"}`),
	"ratio": json.RawMessage(`2.5`), "name": json.RawMessage(`"näme-1"`), "data": json.RawMessage(`{"$bytes":"YWJj"}`),
	"wait": json.RawMessage(`{"$duration":"1h30m"}`), "when": json.RawMessage(`{"$timestamp":"2024-02-29T12:30:45.5Z"}`),
	"numbers": json.RawMessage(`[3,1,2,2]`), "names": json.RawMessage(`["b","a","ab"]`),
	"counts": json.RawMessage(`{"a":1,"b":2}`), "labels": json.RawMessage(`{"app":"web","tier":"front"}`),
	"scale": json.RawMessage(`{"replicas":3,"name":"web","paused":false,"factor":1.5,"tags":["x","y"],"limits":{"cpu":2,"memory":5},
		"ports":[{"name":"http","port":80,"open":true},{"name":"https","port":443,"next":{"name":"n","port":1}}],
		"default":{"name":"d","port":1},"since":{"$timestamp":"2023-11-05T01:30:00-05:00"},"grace":{"$duration":"45s"},
		"any":[1,"a"],"parts":{"one":{"name":"p","port":7}},"data":{"$bytes":"AAEC"}}`),
	"authorizer": json.RawMessage(`{"$authorizer":"alice"}`), "ratios": json.RawMessage(`[0.5,2.25,-1.5]`),
	"waits":   json.RawMessage(`[{"$duration":"1s"},{"$duration":"2m"}]`),
	"address": json.RawMessage(`{"$ip":"10.1.2.3"}`), "size": json.RawMessage(`{"$quantity":"1500Mi"}`),
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
	case "zone":
		return maker.pick(`"UTC"`, `"America/New_York"`, `"Europe/Berlin"`, `"Asia/Kolkata"`, `"+05:30"`, `"-11:00"`, `"Pacific/Chatham"`, `"nowhere"`, `""`, `"25:00"`, `"Local"`, `"America/St_Johns"`)
	case "Scale":
		return "scale"
	case "Port":
		return maker.pick("scale.default", "scale.ports[0]", "scale.ports[1]", `scale.parts["one"]`, "scale.parts.one", "scale.ports[1].next", "scale.ports[0].next")
	case "list(Port)":
		return maker.pick("scale.ports", "[scale.default]")
	case "list(double)":
		return maker.pick("ratios", "[1.5, 2.0]", "[]", "[double('NaN'), 1.0]")
	case "list(duration)":
		return maker.pick("waits", `[duration("1s")]`, "[]")
	case "optional(string)":
		return maker.pick(`optional.of("a")`, "optional.none()", "scale.?name", `labels[?"app"]`, "scale.?default.name", "scale.?missing", "self.?b")
	case "authorizer":
		return maker.pick("authorizer", `authorizer.serviceAccount("ns", "sa")`, `authorizer.serviceAccount("Bad_NS", "sa")`, `authorizer.serviceAccount("ns", "")`)
	case "check":
		return maker.pick(`authorizer.path("/healthz")`, `authorizer.group("apps").resource("deployments")`, `authorizer.group("").resource("pods").namespace("ns").name("n")`)
	case "decision":
		return maker.pick(`authorizer.path("/healthz").check("get")`, `authorizer.group("").resource("pods").check("fail")`, `authorizer.group("apps").resource("deployments").check("list")`)
	case "patch":
		return maker.pick(`"a/b~c"`, `"~1"`, `"/"`)
	case "pattern":
		return maker.pick(`"[a-z]+"`, `"a*"`, `"(?i)[A-F\\d]+"`, `r"\bn.*\b"`, `"[[:alpha:]]{2,3}"`, `r"\pL|\PN"`, `"(?P<x>a)|b$"`, `"a**"`, `"[b-a]"`, `r"\Qa.b\E"`, `"x{1001}"`, `"a{,2}"`, `r"[^\W_]+?"`, `"("`)
	}
	return maker.pick("self", "self.a", "self.b", "self.c", "self.d.e", "self.d.f", "self.n", "self.missing", "self.c[2]", "dyn(1)", `dyn("a")`, "null", "self.d")
}

// composed fills a shape. $ is a new variable of type int, $s of type string, $p a port, $i and $j of
// type int.
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
	replace("$p", fmt.Sprintf("p%d", number), "Port")
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
