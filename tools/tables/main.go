// Command tables prints the compact type table of Kubernetes' built-in kinds that the crate `api`
// embeds: names, types, keys and numbers, no prose. Building Coracle does not need it; it runs when
// the Kubernetes version moves:
//
//	go run . > ../../crates/api/src/schema/types.tbl
//
// The format is described in crates/api/src/schema/table.rs, its only reader.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

const kubernetesVersion = "v1.36.4"

// stable matches the versions that are generally available.
var stable = regexp.MustCompile(`^v[0-9]+$`)

// onDemand are the versions that are not generally available and can be switched on.
var onDemand = []string{"storagemigration.k8s.io/v1beta1"}

// kinds maps a Go type to the group-version-kinds it is registered as.
type kinds map[reflect.Type][]schema.GroupVersionKind

func main() {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(known); err != nil {
			fail("register: %v", err)
		}
	}
	walk := &walker{
		definitions: openapi.GetOpenAPIDefinitions(func(path string) spec.Ref {
			return spec.MustCreateRef(path)
		}),
		seen:    map[string]reflect.Type{},
		sources: sources{},
	}
	registered := kinds{}
	for _, version := range known.PrioritizedVersionsAllGroups() {
		if !stable.MatchString(version.Version) && !slices.Contains(onDemand, version.String()) {
			continue
		}
		for kind, goType := range known.KnownTypes(version) {
			if goType.PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath() && version.Group != "" {
				continue
			}
			if strings.HasPrefix(kind, "Internal") || goType.PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/internalversion" {
				continue
			}
			registered[goType] = append(registered[goType], version.WithKind(kind))
			walk.visit(goType)
		}
	}
	for _, meta := range []reflect.Type{
		reflect.TypeFor[metav1.Status](), reflect.TypeFor[metav1.Table](), reflect.TypeFor[metav1.PartialObjectMetadata](),
		reflect.TypeFor[metav1.PartialObjectMetadataList](), reflect.TypeFor[metav1.WatchEvent](),
		reflect.TypeFor[metav1.APIVersions](), reflect.TypeFor[metav1.APIGroup](), reflect.TypeFor[metav1.APIGroupList](),
		reflect.TypeFor[metav1.APIResourceList](), reflect.TypeFor[metav1.DeleteOptions](), reflect.TypeFor[metav1.List](),
		reflect.TypeFor[metav1.TableOptions](), reflect.TypeFor[metav1.LabelSelector](),
	} {
		walk.visit(meta)
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "V\t%s\n", kubernetesVersion)
	names := make([]string, 0, len(walk.seen))
	for name := range walk.seen {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		walk.print(out, name, walk.seen[name], registered[walk.seen[name]])
	}
	if err := out.Flush(); err != nil {
		fail("write: %v", err)
	}
}

// walker collects every struct type that is reachable from the visited ones.
type walker struct {
	definitions map[string]common.OpenAPIDefinition
	seen        map[string]reflect.Type
	sources     sources
}

func (w *walker) visit(goType reflect.Type) {
	switch goType.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		w.visit(goType.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if _, leaf := leaves[fullName(goType)]; leaf {
		return
	}
	name := definitionName(goType)
	if _, done := w.seen[name]; done {
		return
	}
	w.seen[name] = goType
	for field := range fieldsOf(goType) {
		w.visit(field.Type)
	}
}

func (w *walker) print(out *bufio.Writer, name string, goType reflect.Type, versions []schema.GroupVersionKind) {
	definition, documented := w.definitions[name]
	fmt.Fprintf(out, "T\t%s\t%s", name, goType.String())
	sort.Slice(versions, func(i, j int) bool { return versions[i].String() < versions[j].String() })
	for _, version := range versions {
		fmt.Fprintf(out, "\tgvk=%s/%s/%s", version.Group, version.Version, version.Kind)
	}
	if !documented {
		fmt.Fprint(out, "\tundocumented=")
	}
	writeExtensions(out, definition.Schema.Extensions)
	fmt.Fprintln(out, validationText(w.sources.of(goType, "")))
	for field := range fieldsOf(goType) {
		jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		flags := ""
		if jsonName == "" {
			flags += "n"
		}
		if field.Type.Kind() == reflect.Pointer {
			flags += "p"
		}
		if slices.Contains(strings.Split(options, ","), "omitempty") {
			flags += "o"
		}
		if slices.Contains(strings.Split(options, ","), "omitzero") {
			flags += "z"
		}
		property := definition.Schema.Properties[jsonName]
		if slices.Contains(definition.Schema.Required, jsonName) {
			flags += "r"
		}
		fmt.Fprintf(out, "F\t%s\t%s\t%s\t%s", jsonName, typeText(field.Type), flags, protobufText(field))
		if goName := bare(field.Type).String(); goName != impliedGoName(field.Type) {
			fmt.Fprintf(out, "\tgo=%s", goName)
		}
		for _, tag := range []string{"patchStrategy", "patchMergeKey"} {
			if value := field.Tag.Get(tag); value != "" {
				fmt.Fprintf(out, "\t%s=%s", tag, value)
			}
		}
		if jsonName != "" && documented {
			writeProperty(out, name+"."+jsonName, field, property)
		}
		fmt.Fprintln(out, validationText(w.sources.of(goType, field.Name)))
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "tables: "+format+"\n", arguments...)
	os.Exit(1)
}
