// How types and values are written in cases and answers.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// numbers writes the number of each node into the printed tree.
type numbers struct{}

func (numbers) GetMetadata(context any) string {
	switch node := context.(type) {
	case ast.Expr:
		return fmt.Sprintf("^#%d#", node.ID())
	case ast.EntryExpr:
		return fmt.Sprintf("^#%d#", node.ID())
	}
	return ""
}

// parseType reads "int", "list(int)", "map(string, dyn)", "optional(int)".
func parseType(text string, objects map[string]map[string]string) (*cel.Type, error) {
	text = strings.TrimSpace(text)
	simple := map[string]*cel.Type{
		"null": cel.NullType, "bool": cel.BoolType, "int": cel.IntType, "uint": cel.UintType,
		"double": cel.DoubleType, "string": cel.StringType, "bytes": cel.BytesType,
		"duration": cel.DurationType, "timestamp": cel.TimestampType, "dyn": cel.DynType,
		"type": cel.TypeType, "ip": apiservercel.IPType, "cidr": apiservercel.CIDRType,
		"quantity": apiservercel.QuantityType, "url": apiservercel.URLType,
		"authorizer": library.AuthorizerType,
	}
	if known, ok := simple[text]; ok {
		return known, nil
	}
	if _, ok := objects[text]; ok {
		return cel.ObjectType(text), nil
	}
	outer, inner, ok := strings.Cut(text, "(")
	if !ok || !strings.HasSuffix(inner, ")") {
		return nil, fmt.Errorf("no type: %q", text)
	}
	inner = strings.TrimSuffix(inner, ")")
	switch outer {
	case "list", "optional":
		item, err := parseType(inner, objects)
		if err != nil {
			return nil, err
		}
		if outer == "optional" {
			return cel.OptionalType(item), nil
		}
		return cel.ListType(item), nil
	case "map":
		left, right, _ := strings.Cut(inner, ",")
		key, err := parseType(left, objects)
		if err != nil {
			return nil, err
		}
		value, err := parseType(right, objects)
		if err != nil {
			return nil, err
		}
		return cel.MapType(key, value), nil
	}
	return nil, fmt.Errorf("no type: %q", text)
}

// readValue reads JSON, where whole numbers are int, others double, and an object with the one
// member $uint, $bytes (base64), $duration, $timestamp, $double or $map (pairs) is that value.
func readValue(text json.RawMessage) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	return convert(tree)
}

func convert(tree any) (any, error) {
	switch node := tree.(type) {
	case nil:
		return types.NullValue, nil
	case bool, string:
		return node, nil
	case json.Number:
		if whole, err := node.Int64(); err == nil {
			return whole, nil
		}
		return node.Float64()
	case []any:
		items := make([]any, len(node))
		for index, item := range node {
			value, err := convert(item)
			if err != nil {
				return nil, err
			}
			items[index] = value
		}
		return items, nil
	case map[string]any:
		if len(node) == 1 {
			for tag, inner := range node {
				if strings.HasPrefix(tag, "$") {
					return tagged(tag, inner)
				}
			}
		}
		object := map[string]any{}
		for key, inner := range node {
			value, err := convert(inner)
			if err != nil {
				return nil, err
			}
			object[key] = value
		}
		return object, nil
	}
	return nil, fmt.Errorf("no value: %v", tree)
}

func tagged(tag string, inner any) (any, error) {
	text := fmt.Sprint(inner)
	switch tag {
	case "$uint":
		return strconv.ParseUint(text, 10, 64)
	case "$double":
		return strconv.ParseFloat(text, 64)
	case "$bytes":
		return base64.StdEncoding.DecodeString(text)
	case "$duration":
		return time.ParseDuration(text)
	case "$timestamp":
		return time.Parse(time.RFC3339Nano, text)
	case "$ip":
		address, err := netip.ParseAddr(text)
		return apiservercel.IP{Addr: address}, err
	case "$quantity":
		quantity, err := resource.ParseQuantity(text)
		return apiservercel.Quantity{Quantity: &quantity}, err
	case "$authorizer":
		return library.NewAuthorizerVal(&user.DefaultInfo{Name: text}, authorizer.AuthorizerFunc(decide)), nil
	case "$map":
		pairs, _ := inner.([]any)
		made := map[ref.Val]ref.Val{}
		for _, pair := range pairs {
			two, _ := pair.([]any)
			if len(two) != 2 {
				return nil, fmt.Errorf("no pair: %v", pair)
			}
			key, err := convert(two[0])
			if err != nil {
				return nil, err
			}
			value, err := convert(two[1])
			if err != nil {
				return nil, err
			}
			adapter := types.DefaultTypeAdapter
			made[adapter.NativeToValue(key)] = adapter.NativeToValue(value)
		}
		return types.NewRefValMap(types.DefaultTypeAdapter, made), nil
	}
	return nil, fmt.Errorf("no tag: %s", tag)
}

// printValue writes a value so that two that differ are written differently. Maps are sorted by
// what is written.
func printValue(value ref.Val) string {
	switch known := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return strconv.FormatBool(bool(known))
	case types.Int:
		return strconv.FormatInt(int64(known), 10)
	case types.Uint:
		return strconv.FormatUint(uint64(known), 10) + "u"
	case types.Double:
		return "double(" + strconv.FormatFloat(float64(known), 'e', -1, 64) + ")"
	case types.String:
		return quote(string(known))
	case types.Bytes:
		return fmt.Sprintf("b\"%x\"", []byte(known))
	case types.Duration:
		return fmt.Sprintf("duration(%d)", known.Duration.Nanoseconds())
	case types.Timestamp:
		return fmt.Sprintf("timestamp(%s)", known.Time.UTC().Format(time.RFC3339Nano))
	case *types.Optional:
		if !known.HasValue() {
			return "none"
		}
		return "optional(" + printValue(known.GetValue()) + ")"
	case *types.Type:
		return "type(" + known.String() + ")"
	case apiservercel.Quantity:
		return "quantity(" + known.Quantity.String() + ")"
	case *apiservercel.Quantity:
		return "quantity(" + known.Quantity.String() + ")"
	case apiservercel.IP:
		return "ip(" + known.Addr.String() + ")"
	case apiservercel.CIDR:
		return "cidr(" + known.Prefix.String() + ")"
	case apiservercel.URL:
		return "url(" + known.URL.String() + ")"
	case apiservercel.Semver:
		return "semver(" + known.Version.String() + ")"
	case traits.Lister:
		var items []string
		for iterator := known.Iterator(); iterator.HasNext() == types.True; {
			items = append(items, printValue(iterator.Next()))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case traits.Mapper:
		var entries []string
		for iterator := known.Iterator(); iterator.HasNext() == types.True; {
			key := iterator.Next()
			entries = append(entries, printValue(key)+": "+printValue(known.Get(key)))
		}
		sort.Strings(entries)
		return "{" + strings.Join(entries, ", ") + "}"
	}
	return value.Type().TypeName()
}

func quote(text string) string {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(buffer.String(), "\n")
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
