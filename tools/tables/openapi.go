package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// writeProperty writes what OpenAPI says of a field beyond its Go type.
func writeProperty(out *bufio.Writer, path string, field reflect.StructField, property spec.Schema) {
	given, implied := marshal(property.Default), impliedDefault(field)
	switch {
	case given == implied:
	case given == "null":
		fmt.Fprint(out, "\tnodefault=")
	default:
		fmt.Fprintf(out, "\tdefault=%s", given)
	}
	writeConstraints(out, "", property)
	writeExtensions(out, property.Extensions)
	if property.Items != nil && property.Items.Schema != nil {
		writeConstraints(out, "item.", *property.Items.Schema)
	}
	if property.AdditionalProperties != nil && property.AdditionalProperties.Schema != nil {
		writeConstraints(out, "item.", *property.AdditionalProperties.Schema)
	}
}

func writeConstraints(out *bufio.Writer, prefix string, property spec.Schema) {
	if len(property.Enum) > 0 {
		values := make([]string, len(property.Enum))
		for index, value := range property.Enum {
			values[index] = fmt.Sprint(value)
		}
		fmt.Fprintf(out, "\t%senum=%s", prefix, strings.Join(values, ","))
	}
	if property.Format != "" {
		fmt.Fprintf(out, "\t%sformat=%s", prefix, property.Format)
	}
	rest := spec.Schema{SchemaProps: property.SchemaProps}
	rest.Description, rest.Default, rest.Enum, rest.Format, rest.Type = "", nil, nil, "", nil
	rest.Items, rest.AdditionalProperties, rest.Ref, rest.Required, rest.Properties = nil, nil, spec.Ref{}, nil, nil
	if text := marshal(rest); text != "{}" {
		fmt.Fprintf(out, "\t%srest=%s", prefix, text)
	}
}

// writeExtensions writes the x-kubernetes-* keys, sorted, without that prefix.
func writeExtensions(out *bufio.Writer, extensions spec.Extensions) {
	names := make([]string, 0, len(extensions))
	for name := range extensions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		short := strings.TrimPrefix(name, "x-kubernetes-")
		// The struct tags already say these two.
		if short == "patch-strategy" || short == "patch-merge-key" {
			continue
		}
		fmt.Fprintf(out, "\t%s=%s", short, marshal(extensions[name]))
	}
}

// impliedDefault is the default that kube-openapi gives a field because of its Go type alone.
func impliedDefault(field reflect.StructField) string {
	if field.Type.Kind() == reflect.Pointer {
		return "null"
	}
	if field.Type.Kind() == reflect.Struct {
		if _, leaf := leaves[fullName(field.Type)]; leaf {
			return "null"
		}
		return "{}"
	}
	if strings.Contains(field.Tag.Get("json"), ",omit") {
		return "null"
	}
	switch field.Type.Kind() {
	case reflect.String:
		return `""`
	case reflect.Bool:
		return "false"
	case reflect.Int32, reflect.Int64, reflect.Float64:
		return "0"
	}
	return "null"
}

func marshal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		fail("%v: %v", value, err)
	}
	return string(text)
}
