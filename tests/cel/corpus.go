// Where cases come from: the language's own suite, the strings of upstream's tests, and expressions
// of the Kubernetes documentation's kind. All of it is read from the module cache when the judge runs.
package main

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	expr "cel.dev/expr"
	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
	conformance "cel.dev/expr/conformance/test"
	"encoding/base64"
	"encoding/json"

	"google.golang.org/protobuf/encoding/prototext"
	// Their tests are read.
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	_ "k8s.io/dynamic-resource-allocation/cel"
)

// moduleDirectory finds a module in the cache of the Go toolchain.
func moduleDirectory(module string) (string, error) {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", module, err)
	}
	return strings.TrimSpace(string(found)), nil
}

// specification reads the suite of the language. Cases that need protocol buffer messages or a
// container are left out, because Kubernetes has neither.
func specification() ([]Case, error) {
	directory, err := moduleDirectory("cel.dev/expr")
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(directory, "tests/simple/testdata/*.textproto"))
	if err != nil {
		return nil, err
	}
	var cases []Case
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		suite := &conformance.SimpleTestFile{}
		if err := prototext.Unmarshal(text, suite); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, section := range suite.Section {
			for _, test := range section.Test {
				if made, ok := specified(test); ok {
					made.Name = suite.Name + "/" + section.Name + "/" + test.Name
					cases = append(cases, made)
				}
			}
		}
	}
	return cases, nil
}

func specified(test *conformance.SimpleTest) (Case, bool) {
	made := Case{Expr: test.Expr, Declare: map[string]string{}, Vars: map[string]json.RawMessage{}}
	if test.Container != "" {
		return made, false
	}
	for _, declared := range test.TypeEnv {
		variable := declared.GetIdent()
		if variable == nil {
			return made, false
		}
		kind, ok := typeText(variable.Type)
		if !ok {
			return made, false
		}
		made.Declare[declared.Name] = kind
	}
	for name, bound := range test.Bindings {
		value, ok := jsonOf(bound.GetValue())
		if !ok {
			return made, false
		}
		text, err := json.Marshal(value)
		if err != nil {
			return made, false
		}
		made.Vars[name] = text
	}
	return made, true
}

func typeText(kind *expr.Type) (string, bool) {
	switch known := kind.TypeKind.(type) {
	case *expr.Type_Primitive:
		name := map[expr.Type_PrimitiveType]string{
			expr.Type_BOOL: "bool", expr.Type_INT64: "int", expr.Type_UINT64: "uint",
			expr.Type_DOUBLE: "double", expr.Type_STRING: "string", expr.Type_BYTES: "bytes",
		}[known.Primitive]
		return name, name != ""
	case *expr.Type_Dyn:
		return "dyn", true
	case *expr.Type_Null:
		return "null", true
	case *expr.Type_WellKnown:
		switch known.WellKnown {
		case expr.Type_DURATION:
			return "duration", true
		case expr.Type_TIMESTAMP:
			return "timestamp", true
		}
	case *expr.Type_ListType_:
		item, ok := typeText(known.ListType.ElemType)
		return "list(" + item + ")", ok
	case *expr.Type_MapType_:
		key, first := typeText(known.MapType.KeyType)
		value, second := typeText(known.MapType.ValueType)
		return "map(" + key + ", " + value + ")", first && second
	}
	return "", false
}

func jsonOf(value *expr.Value) (any, bool) {
	switch known := value.GetKind().(type) {
	case *expr.Value_NullValue:
		return nil, true
	case *expr.Value_BoolValue:
		return known.BoolValue, true
	case *expr.Value_Int64Value:
		return known.Int64Value, true
	case *expr.Value_Uint64Value:
		return map[string]any{"$uint": strconv.FormatUint(known.Uint64Value, 10)}, true
	case *expr.Value_DoubleValue:
		return map[string]any{"$double": strconv.FormatFloat(known.DoubleValue, 'g', -1, 64)}, true
	case *expr.Value_StringValue:
		return known.StringValue, true
	case *expr.Value_BytesValue:
		return map[string]any{"$bytes": base64.StdEncoding.EncodeToString(known.BytesValue)}, true
	case *expr.Value_ListValue:
		items := []any{}
		for _, item := range known.ListValue.Values {
			made, ok := jsonOf(item)
			if !ok {
				return nil, false
			}
			items = append(items, made)
		}
		return items, true
	case *expr.Value_MapValue:
		pairs := []any{}
		for _, entry := range known.MapValue.Entries {
			key, first := jsonOf(entry.Key)
			inner, second := jsonOf(entry.Value)
			if !first || !second {
				return nil, false
			}
			pairs = append(pairs, []any{key, inner})
		}
		return map[string]any{"$map": pairs}, true
	}
	return nil, false
}

//go:embed documented.txt
var documentedExpressions string

// documented are the folders whose comments explain libraries with examples.
var documented = map[string][]string{
	"github.com/google/cel-go": {"ext", "cel"},
	"k8s.io/apiserver":         {"pkg/cel/library"},
}

// inDocumentation reads the examples of Kubernetes' documentation and of the comments on the libraries.
func inDocumentation() ([]Case, error) {
	variables, err := variablesOfTests()
	if err != nil {
		return nil, err
	}
	variables.Declare["authorizer"] = "authorizer"
	variables.Vars["authorizer"] = json.RawMessage(`{"$authorizer":"alice"}`)
	variables.With = []string{"jsonpatch"}
	var cases []Case
	seen := map[string]bool{}
	add := func(name, text string) {
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") || seen[text] {
			return
		}
		seen[text] = true
		made := variables
		made.Name, made.Expr = name, text
		cases = append(cases, made)
	}
	for _, line := range strings.Split(documentedExpressions, "\n") {
		add("documentation", line)
	}
	for _, module := range sortedKeys(documented) {
		directory, err := moduleDirectory(module)
		if err != nil {
			return nil, err
		}
		for _, folder := range documented[module] {
			files, err := filepath.Glob(filepath.Join(directory, folder, "*.go"))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
				if err != nil {
					return nil, err
				}
				for _, group := range parsed.Comments {
					for _, line := range strings.Split(group.Text(), "\n") {
						// Code is indented; what it answers is after a comment of its own.
						if code, _, _ := strings.Cut(line, "//"); strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ") {
							add(folder+"/"+filepath.Base(file), code)
						}
					}
				}
			}
		}
	}
	return cases, nil
}

// quoted are the modules and folders whose tests are full of expressions.
var quoted = map[string][]string{
	"github.com/google/cel-go":           {"parser", "checker", "interpreter", "cel", "ext", "common/types"},
	"k8s.io/apiserver":                   {"pkg/cel/library", "pkg/cel/environment", "pkg/cel/mutation", "pkg/cel/openapi", "pkg/cel/common", "pkg/admission/plugin/policy/validating", "pkg/admission/plugin/policy/mutating", "pkg/admission/plugin/cel", "pkg/authentication/cel", "pkg/authorization/cel"},
	"k8s.io/apiextensions-apiserver":     {"pkg/apiserver/schema/cel", "pkg/apis/apiextensions/validation"},
	"k8s.io/dynamic-resource-allocation": {"cel"},
}

// quotedInTests takes the string literals of upstream's tests for expressions: many are, and what is
// none must be refused in the same words.
func quotedInTests() ([]Case, error) {
	var cases []Case
	seen := map[string]bool{}
	variables, err := variablesOfTests()
	if err != nil {
		return nil, err
	}
	for _, module := range sortedKeys(quoted) {
		directory, err := moduleDirectory(module)
		if err != nil {
			return nil, err
		}
		for _, folder := range quoted[module] {
			files, err := filepath.Glob(filepath.Join(directory, folder, "*_test.go"))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				literals, err := stringsOf(file)
				if err != nil {
					return nil, err
				}
				for _, literal := range literals {
					if seen[literal] || len(literal) > 20000 || strings.TrimSpace(literal) == "" {
						continue
					}
					seen[literal] = true
					cases = append(cases, Case{
						Name:    folder + "/" + filepath.Base(file),
						Expr:    literal,
						Declare: variables.Declare,
						Vars:    variables.Vars,
					})
				}
			}
		}
	}
	return cases, nil
}

func stringsOf(file string) ([]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	ast.Inspect(parsed, func(node ast.Node) bool {
		if _, ok := node.(*ast.ImportSpec); ok {
			return false
		}
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found, nil
}

// variablesOfTests gives the names that upstream's tests use most a type and a value.
func variablesOfTests() (Case, error) {
	object := map[string]any{
		"val": 5, "val1": "a", "val2": 2, "name": "x", "replicas": 3, "minReplicas": 1, "maxReplicas": 9,
		"list": []any{1, 2, 3}, "strings": []any{"a", "b"}, "map": map[string]any{"a": 1, "b": 2},
		"metadata": map[string]any{"name": "n", "labels": map[string]any{"k": "v"}},
		"spec":     map[string]any{"replicas": 3}, "duration": map[string]any{"$duration": "1h"},
		"nothing": nil, "flag": true, "ratio": 0.5,
	}
	values := map[string]any{
		"self": object, "oldSelf": object, "object": object, "oldObject": object, "params": object,
		"request": object, "variables": object, "x": 1, "y": 2, "z": 3, "a": "a", "b": "b", "c": true,
		"m": map[string]any{"k": "v"}, "l": []any{1, 2}, "s": "text", "i": 7, "f": 1.5,
	}
	made := Case{Declare: map[string]string{}, Vars: map[string]json.RawMessage{}}
	for name, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return made, err
		}
		made.Declare[name] = "dyn"
		made.Vars[name] = text
	}
	for name, kind := range map[string]string{"m": "map(string, string)", "l": "list(int)", "s": "string", "i": "int", "f": "double"} {
		made.Declare[name] = kind
	}
	return made, nil
}
