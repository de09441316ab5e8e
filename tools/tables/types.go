package main

import (
	"iter"
	"reflect"
	"strings"
)

// leaves are the types with a JSON form of their own; each has one letter in the table.
var leaves = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "t",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "u",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "D",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "f",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "r",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "q",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "I",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "j",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "A",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "O",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "S",
}

// scalars are the letters of Go's own kinds.
var scalars = map[reflect.Kind]string{
	reflect.String: "s", reflect.Bool: "b", reflect.Int32: "i", reflect.Int64: "l",
	reflect.Uint8: "y", reflect.Float64: "d", reflect.Interface: "a",
}

// fieldsOf yields the fields that JSON sees, in declaration order.
func fieldsOf(goType reflect.Type) iter.Seq[reflect.StructField] {
	return func(yield func(reflect.StructField) bool) {
		for index := range goType.NumField() {
			field := goType.Field(index)
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "-" || !field.IsExported() {
				continue
			}
			if name == "" && !field.Anonymous && !strings.Contains(options, "inline") {
				fail("%s.%s has no JSON name", goType, field.Name)
			}
			if !yield(field) {
				return
			}
		}
	}
}

func fullName(goType reflect.Type) string {
	return goType.PkgPath() + "." + goType.Name()
}

// bare takes one pointer away.
func bare(goType reflect.Type) reflect.Type {
	if goType.Kind() == reflect.Pointer {
		return goType.Elem()
	}
	return goType
}

// definitionName is the type's name in OpenAPI.
func definitionName(goType reflect.Type) string {
	if named, ok := reflect.New(goType).Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	fail("%s has no OpenAPI name", goType)
	return ""
}

// typeText writes a type in the table's notation: a letter, @definition, [list, {map of string to.
// A named list that protobuf wraps into a message of its own has w before it.
func typeText(goType reflect.Type) string {
	goType = bare(goType)
	if letter, leaf := leaves[fullName(goType)]; leaf {
		return letter
	}
	switch goType.Kind() {
	case reflect.Struct:
		return "@" + definitionName(goType)
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "B"
		}
		text := "[" + typeText(goType.Elem())
		if _, message := reflect.New(goType).Interface().(interface{ Marshal() ([]byte, error) }); message {
			text = "w" + text
		}
		return text
	case reflect.Map:
		if goType.Key().Kind() != reflect.String {
			fail("%s is a map without string keys", goType)
		}
		return "{" + typeText(goType.Elem())
	}
	letter, ok := scalars[goType.Kind()]
	if !ok {
		fail("no letter for %s", goType)
	}
	return letter
}

// impliedGoName is the Go name that the table's reader works out from typeText; another one is
// written beside it.
func impliedGoName(goType reflect.Type) string {
	goType = bare(goType)
	if goType.Kind() == reflect.Struct {
		return goType.String()
	}
	switch goType.Kind() {
	case reflect.Slice:
		return "[]" + impliedGoName(goType.Elem())
	case reflect.Map:
		return "map[string]" + impliedGoName(goType.Elem())
	case reflect.Interface:
		return "interface {}"
	}
	return goType.Kind().String()
}

// protobufText is the field number and wire type, e.g. "3v": b bytes, v varint, f fixed64.
func protobufText(field reflect.StructField) string {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	wires := map[string]string{"bytes": "b", "varint": "v", "fixed64": "f"}
	wire, ok := wires[parts[0]]
	if !ok {
		fail("wire type %q of %s", parts[0], field.Name)
	}
	return parts[1] + wire
}
