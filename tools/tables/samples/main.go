// Command samples prints, for every kind of the table of types, objects as Kubernetes writes them: one
// line with apiVersion, kind, protobuf in hexadecimal (with the envelope), and JSON. It checks the
// protobuf transcoding of the crate `api` against Go:
//
//	go run ./samples > all.txt
//
// Kinds given as arguments print only those, two objects of each: the crate's tests keep such a file,
// crates/api/src/protobuf/samples.txt.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var stable = regexp.MustCompile(`^v[0-9]+$`)

// onDemand are the versions that are not generally available and can be switched on.
var onDemand = []string{"storagemigration.k8s.io/v1beta1"}

func main() {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		check(add(known))
	}
	var kinds []schema.GroupVersionKind
	for kind, goType := range known.AllKnownTypes() {
		meta := goType.PkgPath() == reflect.TypeFor[metav1.Status]().PkgPath()
		served := stable.MatchString(kind.Version) || slices.Contains(onDemand, kind.GroupVersion().String())
		if served && (!meta || kind.Group == "" && kind.Kind == "DeleteOptions" || kind.Group == "" && kind.Kind == "Status") {
			kinds = append(kinds, kind)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := protobuf.NewSerializer(known, known)
	chosen, seeds := os.Args[1:], 4
	if len(chosen) > 0 {
		seeds = 2
	}
	for _, kind := range kinds {
		if len(chosen) > 0 && !slices.Contains(chosen, kind.Kind) {
			continue
		}
		for seed := range seeds {
			object, err := known.New(kind)
			check(err)
			// The first is empty, the others ever fuller.
			random := rand.New(rand.NewSource(int64(seed)))
			if seed > 0 {
				fill(reflect.ValueOf(object).Elem(), random, 0)
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			raw, err := runtime.Encode(encoder, object)
			check(err)
			text, err := json.Marshal(object)
			check(err)
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", kind.GroupVersion(), kind.Kind, hex.EncodeToString(raw), text)
		}
	}
}

// fill sets most fields to small values, deterministically. Values with a JSON form of their own are
// always set: JSON cannot tell a pointer to an empty one from none.
func fill(value reflect.Value, random *rand.Rand, depth int) {
	switch special := value.Addr().Interface().(type) {
	case *metav1.Time:
		special.Time = time.Unix(random.Int63n(2e9), 0).UTC()
		return
	case *metav1.MicroTime:
		special.Time = time.Unix(random.Int63n(2e9), random.Int63n(1e6)*1000).UTC()
		return
	case *metav1.Duration:
		special.Duration = time.Duration(random.Int63n(1e12))
		return
	case *resource.Quantity:
		*special = resource.MustParse([]string{"0", "1", "250m", "1Gi", "-3", "12e6", "1500Mi"}[random.Intn(7)])
		return
	case *intstr.IntOrString:
		*special = []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(8080), intstr.FromString("http"), intstr.FromString("")}[random.Intn(4)]
		return
	case *runtime.RawExtension:
		special.Raw = []byte(`{"a":[1,"x"],"kind":"K"}`)
		return
	case *metav1.FieldsV1:
		special.Raw = []byte(`{"f:metadata":{"f:name":{}}}`)
		return
	case *apiextensions.JSON:
		special.Raw = []byte(`{"a":1}`)
		return
	case *apiextensions.JSONSchemaPropsOrBool:
		special.Allows = true
		if random.Intn(2) == 0 {
			special.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		}
		return
	case *apiextensions.JSONSchemaPropsOrArray:
		if random.Intn(2) == 0 {
			special.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			special.JSONSchemas = []apiextensions.JSONSchemaProps{{Type: "integer"}, {}}
		}
		return
	case *apiextensions.JSONSchemaPropsOrStringArray:
		if random.Intn(2) == 0 {
			special.Schema = &apiextensions.JSONSchemaProps{Type: "string"}
		} else {
			special.Property = []string{"a", "b"}
		}
		return
	}
	if depth > 9 || random.Intn(5) == 0 && depth > 2 {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		for index := range value.NumField() {
			if value.Type().Field(index).Name != "TypeMeta" && value.Field(index).CanSet() {
				fill(value.Field(index), random, depth+1)
			}
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem(), random, depth+1)
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			value.SetBytes([]byte{0, 1, 255, byte(random.Intn(256))})
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), 1+random.Intn(2), 4))
		for index := range value.Len() {
			fill(value.Index(index), random, depth+1)
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for range 1 + random.Intn(3) {
			key := reflect.New(value.Type().Key()).Elem()
			key.SetString(string(rune('a' + random.Intn(26))))
			item := reflect.New(value.Type().Elem()).Elem()
			if item.Kind() == reflect.Slice && item.Type().Elem().Kind() == reflect.Uint8 {
				item.SetBytes([]byte("v"))
			}
			fill(item, random, depth+1)
			value.SetMapIndex(key, item)
		}
	case reflect.String:
		value.SetString([]string{"", "x", "a longer text with ünïcode"}[random.Intn(3)])
	case reflect.Bool:
		value.SetBool(random.Intn(2) == 0)
	case reflect.Int32:
		value.SetInt([]int64{0, 1, -1, 300, 1<<31 - 1}[random.Intn(5)])
	case reflect.Int64:
		value.SetInt([]int64{0, 1, -1, 300, 1<<63 - 1}[random.Intn(5)])
	case reflect.Float64:
		value.SetFloat([]float64{0, 1.5, -2e10}[random.Intn(3)])
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "samples:", err)
		os.Exit(1)
	}
}
