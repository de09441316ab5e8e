// Schemas, defaults and rules of CustomResourceDefinitions that are wrong, or nearly so.
package main

import (
	"encoding/json"
	"strings"
)

func wrongSchemas(root, field wrong) {
	root("string", `{"type":"string"}`)
	root("without type", `{}`)
	root("without type, with properties", `{"properties":{"spec":{"type":"object"}}}`)
	root("nullable", `{"type":"object","nullable":true}`)
	root("additional properties", `{"type":"object","additionalProperties":{"type":"string"}}`)
	root("items", `{"type":"object","items":{"type":"string"}}`)
	root("metadata restricted", `{"type":"object","properties":{"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":5},"generateName":{"type":"string","pattern":"^a"}}}}}`)
	root("metadata restricted too far", `{"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}}`)
	root("metadata of strings", `{"type":"object","properties":{"metadata":{"type":"string"}}}`)
	root("metadata required", `{"type":"object","properties":{"metadata":{"type":"object","required":["name"],"minProperties":1}}}`)
	root("api version restricted", `{"type":"object","properties":{"apiVersion":{"type":"string","enum":["v1"]},"kind":{"type":"integer"}}}`)
	root("list type", `{"type":"object","x-kubernetes-list-type":"set"}`)
	root("embedded", `{"type":"object","x-kubernetes-embedded-resource":true}`)
	root("unknown field", `{"type":"object","bogus":1,"properties":{"spec":{"type":"object","bogus":2}}}`)
	root("properties a list", `{"type":"object","properties":["a"]}`)
	root("description a number", `{"type":"object","description":5}`)
	for name, schema := range map[string]string{
		"without type": `{}`, "type odd": `{"type":"odd"}`, "type list": `{"type":["string","null"]}`, "type null": `{"type":"null"}`,
		"reference": `{"$ref":"#/definitions/x"}`, "unique items": `{"type":"array","items":{"type":"string"},"uniqueItems":true}`,
		"array without items": `{"type":"array"}`, "items a list": `{"type":"array","items":[{"type":"string"}]}`, "items true": `{"type":"array","items":true}`,
		"additional items":   `{"type":"array","items":{"type":"string"},"additionalItems":{"type":"string"}}`,
		"pattern properties": `{"type":"object","patternProperties":{"^a":{"type":"string"}}}`, "definitions": `{"type":"object","definitions":{"x":{"type":"string"}}}`,
		"dependencies": `{"type":"object","dependencies":{"a":["b"]}}`, "id": `{"type":"object","id":"x"}`, "schema": `{"type":"object","$schema":"http://json-schema.org/schema#"}`,
		"schema odd": `{"type":"object","$schema":"odd"}`, "external docs": `{"type":"object","externalDocs":{"url":"x","description":"y"}}`, "example": `{"type":"string","example":"x"}`,
		"additional properties false":             `{"type":"object","additionalProperties":false}`,
		"additional properties true":              `{"type":"object","additionalProperties":true}`,
		"additional properties beside properties": `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`,
		"additional properties without type":      `{"type":"object","additionalProperties":{}}`,
		"int or string with type":                 `{"type":"string","x-kubernetes-int-or-string":true}`,
		"int or string false":                     `{"type":"string","x-kubernetes-int-or-string":false}`,
		"int or string, written out":              `{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}`,
		"int or string, written the other way":    `{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"string"},{"type":"integer"}]}`,
		"int or string in all of":                 `{"x-kubernetes-int-or-string":true,"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]},{"pattern":"^a"}]}`,
		"int or string format":                    `{"format":"int-or-string"}`,
		"preserve false":                          `{"type":"object","x-kubernetes-preserve-unknown-fields":false}`,
		"preserve without type":                   `{"x-kubernetes-preserve-unknown-fields":true}`,
		"preserve string":                         `{"type":"string","x-kubernetes-preserve-unknown-fields":true}`,
		"embedded":                                `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}`,
		"embedded without properties":             `{"type":"object","x-kubernetes-embedded-resource":true}`,
		"embedded string":                         `{"type":"string","x-kubernetes-embedded-resource":true}`,
		"embedded metadata":                       `{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}},"spec":{"type":"object"}}}`,
		"embedded kind odd":                       `{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"kind":{"type":"integer"},"spec":{"type":"object"}}}`,
		"any of with type":                        `{"type":"object","anyOf":[{"type":"object"},{"required":["a"]}]}`,
		"any of with description":                 `{"type":"object","anyOf":[{"description":"x","title":"y"}]}`,
		"any of with default":                     `{"type":"object","anyOf":[{"default":{}}]}`,
		"any of with nullable":                    `{"type":"object","anyOf":[{"nullable":true}]}`,
		"any of with unknown property":            `{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"properties":{"b":{"minLength":1}}}]}`,
		"any of with known property":              `{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"properties":{"a":{"minLength":1}}}]}`,
		"any of with items":                       `{"type":"array","items":{"type":"string"},"anyOf":[{"items":{"minLength":1}}]}`,
		"any of with items alone":                 `{"type":"object","anyOf":[{"items":{"minLength":1}}]}`,
		"any of with additional properties":       `{"type":"object","additionalProperties":{"type":"string"},"anyOf":[{"additionalProperties":{"minLength":1}}]}`,
		"any of with extension":                   `{"type":"object","anyOf":[{"x-kubernetes-preserve-unknown-fields":true}]}`,
		"any of with rules":                       `{"type":"object","anyOf":[{"x-kubernetes-validations":[{"rule":"true"}]}]}`,
		"not with default":                        `{"type":"object","not":{"default":1,"type":"string","nullable":true}}`,
		"not":                                     `{"type":"string","not":{"pattern":"^a"}}`,
		"one of nested":                           `{"type":"object","oneOf":[{"allOf":[{"not":{"required":["a"]}}]}]}`,
		"pattern broken":                          `{"type":"string","pattern":"(["}`,
		"pattern with look-ahead":                 `{"type":"string","pattern":"^(?!a)b$"}`,
		"pattern with bounds":                     `{"type":"string","pattern":"a{1,2000}"}`,
		"pattern on integer":                      `{"type":"integer","pattern":"^a"}`,
		"lengths negative":                        `{"type":"string","minLength":-1,"maxLength":-2}`,
		"lengths crossed":                         `{"type":"string","minLength":5,"maxLength":2}`,
		"lengths fraction":                        `{"type":"string","minLength":1.5}`,
		"multiple of zero":                        `{"type":"integer","multipleOf":0}`,
		"multiple of negative":                    `{"type":"integer","multipleOf":-2}`,
		"minimum exclusive":                       `{"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":5,"exclusiveMaximum":true}`,
		"minimum huge":                            `{"type":"integer","minimum":1e300}`,
		"format unknown":                          `{"type":"string","format":"odd"}`,
		"format of another type":                  `{"type":"string","format":"int32"}`,
		"formats unknown in two":                  `{"type":"object","properties":{"a":{"type":"string","format":"odd"},"b":{"type":"string","format":"odder"}}}`,
		"enum empty":                              `{"type":"string","enum":[]}`,
		"enum of other types":                     `{"type":"string","enum":[1,"a",null]}`,
		"enum twice":                              `{"type":"string","enum":["a","a"]}`,
		"required twice":                          `{"type":"object","required":["a","a"],"properties":{"a":{"type":"string"}}}`,
		"required unknown":                        `{"type":"object","required":["b"],"properties":{"a":{"type":"string"}}}`,
		"required empty":                          `{"type":"object","required":[]}`,
		"list type odd":                           `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"odd"}`,
		"list type on object":                     `{"type":"object","x-kubernetes-list-type":"set"}`,
		"list type set of objects":                `{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"set"}`,
		"list type set of atomic objects":         `{"type":"array","items":{"type":"object","x-kubernetes-map-type":"atomic"},"x-kubernetes-list-type":"set"}`,
		"list type set of lists":                  `{"type":"array","items":{"type":"array","items":{"type":"string"}},"x-kubernetes-list-type":"set"}`,
		"list type set of nullable":               `{"type":"array","items":{"type":"string","nullable":true},"x-kubernetes-list-type":"set"}`,
		"list type map without keys":              `{"type":"array","items":{"type":"object"},"x-kubernetes-list-type":"map"}`,
		"list type map of strings":                `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys without map":                   `{"type":"array","items":{"type":"object"},"x-kubernetes-list-map-keys":["a"]}`,
		"list keys absent":                        `{"type":"array","items":{"type":"object","properties":{"b":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys not required":                  `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys defaulted":                     `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string","default":"x"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys required":                      `{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys nullable":                      `{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"string","nullable":true}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys objects":                       `{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"object"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"list keys twice":                         `{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a","a"]}`,
		"list items nullable":                     `{"type":"array","items":{"type":"object","nullable":true,"required":["a"],"properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"]}`,
		"map type odd":                            `{"type":"object","x-kubernetes-map-type":"odd"}`,
		"map type on list":                        `{"type":"array","items":{"type":"string"},"x-kubernetes-map-type":"atomic"}`,
		"map type granular":                       `{"type":"object","x-kubernetes-map-type":"granular"}`,
		"property name empty":                     `{"type":"object","properties":{"":{"type":"string"}}}`,
		"property name odd":                       `{"type":"object","properties":{"a/b c.d":{"type":"string"},"$x":{"type":"integer"}}}`,
		"max items negative":                      `{"type":"array","items":{"type":"string"},"maxItems":-1}`,
		"nullable list":                           `{"type":"array","nullable":true,"items":{"type":"string","nullable":true}}`,
	} {
		field("field "+name, schema)
	}
	field("deep", strings.Repeat(`{"type":"object","properties":{"a":`, 50)+`{"type":"string"}`+strings.Repeat(`}}`, 50))
}

func wrongDefaults(root, field wrong) {
	for name, schema := range map[string]string{
		"of another type": `{"type":"string","default":5}`, "null": `{"type":"string","default":null}`, "null where nullable": `{"type":"string","nullable":true,"default":null}`,
		"against enum": `{"type":"string","enum":["a"],"default":"b"}`, "against pattern": `{"type":"string","pattern":"^a","default":"b"}`, "against minimum": `{"type":"integer","minimum":5,"default":1}`,
		"with unknown field":        `{"type":"object","properties":{"a":{"type":"string"}},"default":{"a":"x","b":"y"}}`,
		"without required field":    `{"type":"object","required":["a"],"properties":{"a":{"type":"string"}},"default":{}}`,
		"completed by another":      `{"type":"object","required":["a"],"properties":{"a":{"type":"string","default":"x"}},"default":{}}`,
		"of a set with twice":       `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set","default":["a","a"]}`,
		"of a map with twice":       `{"type":"array","items":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a"],"default":[{"a":"1"},{"a":"1"}]}`,
		"against rule":              `{"type":"integer","default":1,"x-kubernetes-validations":[{"rule":"self > 5"}]}`,
		"against rule of a sibling": `{"type":"object","default":{"a":1},"properties":{"a":{"type":"integer"}},"x-kubernetes-validations":[{"rule":"self.a > 5","message":"too small"}]}`,
		"transition rule":           `{"type":"integer","default":1,"x-kubernetes-validations":[{"rule":"self > oldSelf"}]}`,
		"embedded":                  `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}}`,
		"embedded without kind":     `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{}}`,
		"embedded metadata odd":     `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"Not Valid","bogus":1}}}`,
		"in items":                  `{"type":"array","items":{"type":"string","default":"x"}}`,
		"in additional properties":  `{"type":"object","additionalProperties":{"type":"string","default":"x"}}`,
		"int or string":             `{"x-kubernetes-int-or-string":true,"default":1.5}`,
		"number":                    `{"type":"number","default":1}`, "fraction for integer": `{"type":"integer","default":1.5}`, "whole fraction": `{"type":"integer","default":1.0}`, "huge": `{"type":"integer","format":"int32","default":99999999999}`,
		"date": `{"type":"string","format":"date-time","default":"yesterday"}`,
	} {
		field("default "+name, schema)
	}
	root("default at the root", `{"type":"object","default":{"a":1}}`)
	root("default of metadata", `{"type":"object","properties":{"metadata":{"type":"object","default":{"name":"x"}}}}`)
	root("default in metadata", `{"type":"object","properties":{"metadata":{"type":"object","properties":{"name":{"type":"string","default":"x"}}}}}`)
	root("default of kind", `{"type":"object","properties":{"kind":{"type":"string","default":"x"}}}`)
}

func wrongRules(root, field wrong) {
	rules := func(name, schema, list string) {
		field("rule "+name, strings.TrimSuffix(schema, "}")+`,"x-kubernetes-validations":[`+list+`]}`)
	}
	object := `{"type":"object","properties":{"s":{"type":"string"},"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"l":{"type":"array","items":{"type":"string"}},"m":{"type":"object","additionalProperties":{"type":"integer"}},"ios":{"x-kubernetes-int-or-string":true},"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"t":{"type":"string","format":"date-time"},"d":{"type":"string","format":"duration"},"by":{"type":"string","format":"byte"},"namespace":{"type":"string"},"a-b.c/d":{"type":"string"},"in":{"type":"string"},"nil":{"type":"string","nullable":true},"members":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}}}},"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}`
	small := `{"type":"object","properties":{"s":{"type":"string","maxLength":10},"l":{"type":"array","maxItems":10,"items":{"type":"string","maxLength":10}},"i":{"type":"integer"}}}`
	for _, rule := range []string{
		``, ` `, `self.`, `self.s ==`, `self.s == 5`, `self.absent == 1`, `self.s`, `self.i + self.n > 1`, `self.i > 1.5`, `self.s + 1 == ''`, `nonsense(self.s)`, `self.s.nonsense()`, `has(self.absent)`, `has(self)`,
		`true`, `false`, `'text'`, `1`, `[]`, `self.b`, `self.b ? 1 : 2`, `self == self`, `self.free == self.free`, `self.free.x == 1`, `self.ios == 5`, `type(self.ios) == int`, `self.t > timestamp('2020-01-01T00:00:00Z')`, `self.d > 5`, `self.by == b'x'`, `self.nil == null`, `self.s == null`,
		`self.__namespace__ == 'x'`, `self.namespace == 'x'`, `self.a__dash__b__dot__c__slash__d == 'x'`, `self['a-b.c/d'] == 'x'`, `self.__in__ == 'x'`, `self.in == 'x'`,
		`self.l.all(x, x == 'a')`, `self.l.all(x, self.l.all(y, self.l.all(z, x == y)))`, `self.members.all(m, m.x.contains('a'))`, `self.l.map(x, x + 'a').exists(x, x == 'b')`, `self.m.all(k, self.m[k] > 1)`, `self.m.exists(k, v, v > 1)`, `self.l.exists_one(x, x == '')`, `self.l.filter(x, x > 1).size() > 0`, `self.l.all(x, y)`, `self.l.map(x, 1, 2, 3)`,
		`self.s.matches('^a')`, `self.s.matches('([')`, `self.s.matches(self.s)`, `self.s.contains(self.s)`, `self.s.split(',').size() < 5`, `self.l.join(',') == ''`, `self.s.replace('a','b') == ''`, `self.s.format([1]) == ''`, `'%d'.format([self.s]) == ''`, `'%q'.format([self.s]) == ''`, `self.s.lowerAscii() == self.s`, `self.s.substring(0, 5) == ''`,
		`isQuantity(self.s) && quantity(self.s).isGreaterThan(quantity('1Gi'))`, `quantity('nonsense').isInteger()`, `url('https://a').getHost() == 'a'`, `isURL(self.s)`, `ip(self.s).family() == 4`, `cidr('10.0.0.0/8').containsIP(self.s)`, `isSemver(self.s)`, `semver('1.0.0').isLessThan(semver(self.s))`, `format.dns1123Label().validate(self.s).hasValue()`, `format.named('nonsense').hasValue()`,
		`sets.contains(self.l, ['a'])`, `self.l.isSorted()`, `self.l.sum() > 1`, `self.m.size() > 0 && self.m['a'] == 1`, `self.l.indexOf('a') == 0`, `self.?s.orValue('x') == 'x'`, `optional.of(1).hasValue()`, `self.l.slice(0, 1) == []`, `self.l.distinct() == self.l`, `self.l.sort() == self.l`, `self.l.transformList(i, v, i) == [0]`, `cel.bind(x, self.s, x == 'a')`,
		`oldSelf.s == self.s`, `oldSelf == self`, `oldSelf.nonsense`, `authorizer.path('/x').check('get').allowed()`, `request.name == ''`, `object.x == 1`, `variables.x`, `duration('1h') > duration(self.s)`, `timestamp(self.s).getHours() > 1`, `now() > timestamp('2020-01-01T00:00:00Z')`, `dyn(self.s) == 1`, `[1, 'a'].size() == 2`, `{'a': 1, 'b': 'c'}.size() == 2`, `self.set == ['a', 'b']`, `self.i / 0 == 1`, `int(self.s) == 1`, `string(self.i) == '1'`, `self.s in self.l`, `!self.s`, `-self.s == ''`, `self.i && self.b`, `"unclosed`, "a\nb", `self.s // comment`,
		strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300), strings.Repeat("!", 200) + "true", strings.Repeat("self.b && ", 200) + "true", strings.Repeat("[", 50) + strings.Repeat("]", 50) + ".size() == 1",
	} {
		rules("expression "+rule, object, `{"rule":`+quoted(rule)+`}`)
	}
	one := `"rule":"self.i > 1"`
	for name, list := range map[string]string{
		"message empty": `{` + one + `,"message":""}`, "message blank": `{` + one + `,"message":" "}`, "message with a line break": `{` + one + `,"message":"a\nb"}`, "message long": `{` + one + `,"message":"` + strings.Repeat("m", 3000) + `"}`,
		"rule of lines without message": `{"rule":"self.i >\n 1"}`, "rule of lines": `{"rule":"self.i >\n 1","message":"x"}`,
		"expression of another type": `{` + one + `,"messageExpression":"5"}`, "expression broken": `{` + one + `,"messageExpression":"'a' +"}`, "expression empty": `{` + one + `,"messageExpression":""}`, "expression blank": `{` + one + `,"messageExpression":" "}`, "expression and message": `{` + one + `,"message":"m","messageExpression":"'x' + self.s"}`,
		"expression costly": `{` + one + `,"messageExpression":"self.l.map(a, self.l.map(b, a + b).join('')).join('')"}`, "expression with old": `{` + one + `,"messageExpression":"oldSelf.s"}`,
		"reason odd": `{` + one + `,"reason":"Odd"}`, "reason required": `{` + one + `,"reason":"FieldValueRequired"}`, "reason empty": `{` + one + `,"reason":""}`,
		"field path absent": `{` + one + `,"fieldPath":".absent"}`, "field path": `{` + one + `,"fieldPath":".s"}`, "field path without dot": `{` + one + `,"fieldPath":"s"}`, "field path index": `{` + one + `,"fieldPath":".l[0]"}`, "field path list": `{` + one + `,"fieldPath":".l"}`, "field path empty": `{` + one + `,"fieldPath":""}`, "field path quoted": `{` + one + `,"fieldPath":"['s']"}`, "field path broken": `{` + one + `,"fieldPath":".s["}`, "field path twice": `{` + one + `,"fieldPath":".s.t"}`,
		"optional old": `{"rule":"!oldSelf.hasValue() || oldSelf.value().i < self.i","optionalOldSelf":true}`, "optional old without old": `{` + one + `,"optionalOldSelf":true}`, "optional old false": `{` + one + `,"optionalOldSelf":false}`, "optional old taken plain": `{"rule":"oldSelf.i < self.i","optionalOldSelf":true}`,
		"twice the same": `{` + one + `},{` + one + `}`, "without rule": `{"message":"m"}`, "empty": `{}`,
	} {
		rules(name, small, list)
	}
	field("rule without bounds", `{"type":"array","items":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.contains('a')"}]}}}`)
	field("rule with bounds", `{"type":"array","maxItems":10,"items":{"type":"array","maxItems":10,"items":{"type":"string","maxLength":10,"x-kubernetes-validations":[{"rule":"self.contains('a')"}]}}}`)
	field("rule in unbounded map", `{"type":"object","additionalProperties":{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}},"x-kubernetes-validations":[{"rule":"self.l.all(x, x.matches('^a*$'))"}]}}`)
	field("rules with large sum", `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[`+strings.TrimSuffix(strings.Repeat(`{"rule":"self.a.size() > 1"},`, 30), ",")+`]}}`)
	field("rules on many levels", `{"type":"array","x-kubernetes-validations":[{"rule":"self.all(x, x.l.all(y, y == 'a'))"}],"items":{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"},"x-kubernetes-validations":[{"rule":"self.all(x, x.contains(x))"}]}}}}`)
	field("transition in atomic list", `{"type":"array","items":{"type":"object","properties":{"a":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}}}`)
	field("transition in set", `{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`)
	field("transition in map", `{"type":"array","maxItems":5,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}}}`)
	field("transition in properties", `{"type":"object","additionalProperties":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`)
	field("transition in atomic map", `{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}`)
	field("rule on list", `{"type":"array","maxItems":5,"items":{"type":"integer"},"x-kubernetes-validations":[{"rule":"self.sum() < 10 && self[0] > 1"}]}`)
	field("rule on embedded", `{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"self.metadata.name == 'a' && self.kind == 'Pod' && self.apiVersion == 'v1'"}]}`)
	field("rule on free content", `{"type":"object","x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"self.x == 1"}]}`)
	field("rule on free content without type", `{"x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-validations":[{"rule":"true"}]}`)
	for _, rule := range []string{`self.metadata.name.size() < 5`, `self.metadata.labels.size() == 0`, `self.metadata.generateName == ''`, `self.metadata.uid == ''`, `self.kind == 'Thing'`, `self.apiVersion.size() > 1`, `self.spec.a == 1`, `has(self.spec)`, `self.status == 1`, `self.metadata == oldSelf.metadata`} {
		root("rule "+rule, `{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"integer"}}}},"x-kubernetes-validations":[{"rule":`+quoted(rule)+`}]}`)
	}
	root("rule on metadata", `{"type":"object","properties":{"metadata":{"type":"object","x-kubernetes-validations":[{"rule":"self.name == 'a'"}]}}}`)
}

func quoted(text string) string {
	encoded, _ := json.Marshal(text)
	return string(encoded)
}
