// What upstream says about one expression: its errors, its type, its cost and its value.
package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/debug"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// Case is one question.
type Case struct {
	// Where the case comes from; it is repeated in the answer.
	Name string `json:"name,omitempty"`
	Expr string `json:"expr"`
	// The version of Kubernetes whose environment compiles it; "" is the one for new expressions.
	Version string `json:"version,omitempty"`
	// What is added to the environment: "bind" and "jsonpatch".
	With []string `json:"with,omitempty"`
	// Objects with declared fields, which types name.
	Objects map[string]map[string]string `json:"objects,omitempty"`
	// The largest sizes of what is at a path, for the estimate.
	Sizes map[string]uint64 `json:"sizes,omitempty"`
	// Variables and their types, such as "map(string, dyn)".
	Declare map[string]string `json:"declare,omitempty"`
	// The values of variables, as values.go reads them.
	Vars map[string]json.RawMessage `json:"vars,omitempty"`
	// Asks for how long an evaluation takes.
	Measure bool `json:"measure,omitempty"`
	// Asks for the tree with the numbers of its nodes.
	Ast bool `json:"ast,omitempty"`
}

// Answer is what a side says.
type Answer struct {
	Name string `json:"name,omitempty"`
	// The errors of compiling, as users see them.
	Errors string `json:"errors,omitempty"`
	Ast    string `json:"ast,omitempty"`
	Type   string `json:"type,omitempty"`
	// The estimated cost, "min-max".
	Estimate string `json:"estimate,omitempty"`
	Value    string `json:"value,omitempty"`
	// The error of evaluating.
	Error string `json:"error,omitempty"`
	// The cost of evaluating.
	Cost     *uint64   `json:"cost,omitempty"`
	Measured *Measured `json:"measured,omitempty"`
	// The side failed in a way that no user should see.
	Crash string `json:"crash,omitempty"`
}

// Measured is the mean of many evaluations.
type Measured struct {
	Nanoseconds float64 `json:"nanoseconds"`
	Allocations float64 `json:"allocations"`
}

type sizes map[string]uint64

func (known sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if size, ok := known[strings.Join(node.Path(), ".")]; ok {
		return &checker.SizeEstimate{Min: 0, Max: size}
	}
	return nil
}
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

var (
	environments = map[string]*cel.Env{}
	lock         sync.Mutex
)

// baseEnvironment is upstream's for a version of Kubernetes.
func baseEnvironment(name string) (*cel.Env, error) {
	lock.Lock()
	defer lock.Unlock()
	if known, ok := environments[name]; ok {
		return known, nil
	}
	wanted := environment.DefaultCompatibilityVersion()
	if name != "" {
		parsed, err := version.Parse(name)
		if err != nil {
			return nil, err
		}
		wanted = parsed
	}
	env := environment.MustBaseEnvSet(wanted).NewExpressionsEnv()
	environments[name] = env
	return env, nil
}

func ask(question Case) (answer Answer) {
	answer.Name = question.Name
	defer func() {
		if reason := recover(); reason != nil {
			answer.Crash = fmt.Sprint(reason)
		}
	}()
	env, err := questionEnvironment(question)
	if err != nil {
		answer.Crash = err.Error()
		return answer
	}
	ast, issues := env.Compile(question.Expr)
	if issues != nil && issues.Err() != nil {
		answer.Errors = issues.String()
		return answer
	}
	if question.Ast {
		answer.Ast = debug.ToAdornedDebugString(ast.NativeRep().Expr(), numbers{})
	}
	answer.Type = ast.OutputType().String()
	estimator := &library.CostEstimator{SizeEstimator: sizes(question.Sizes)}
	estimate, err := env.EstimateCost(ast, estimator)
	if err != nil {
		answer.Estimate = err.Error()
	} else {
		answer.Estimate = fmt.Sprintf("%d-%d", estimate.Min, estimate.Max)
	}
	program, err := env.Program(ast,
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CostTracking(estimator),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		answer.Error = "program: " + err.Error()
		return answer
	}
	activation, err := questionVariables(question.Vars)
	if err != nil {
		answer.Crash = err.Error()
		return answer
	}
	value, details, err := program.Eval(activation)
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.Value = printValue(value)
	}
	if details != nil && details.ActualCost() != nil {
		answer.Cost = details.ActualCost()
	}
	return answer
}

// questionEnvironment has everything that an expression may use.
func questionEnvironment(question Case) (*cel.Env, error) {
	env, err := baseEnvironment(question.Version)
	if err != nil {
		return nil, err
	}
	var options []cel.EnvOption
	for _, name := range question.With {
		switch name {
		case "bind":
			options = append(options, ext.Bindings(ext.BindingsVersion(0)))
		case "jsonpatch":
			options = append(options, library.JSONPatch())
		}
	}
	if len(question.Objects) > 0 {
		options = append(options, cel.CustomTypeProvider(&objects{Provider: env.CELTypeProvider(), known: question.Objects}))
	}
	for _, name := range sortedKeys(question.Declare) {
		kind, err := parseType(question.Declare[name], question.Objects)
		if err != nil {
			return nil, err
		}
		options = append(options, cel.Variable(name, kind))
	}
	if len(options) > 0 {
		env, err = env.Extend(options...)
		if err != nil {
			return nil, err
		}
	}
	return env, nil
}

// questionProgram compiles an expression as Kubernetes does.
func questionProgram(env *cel.Env, question Case) (cel.Program, error) {
	ast, issues := env.Compile(question.Expr)
	if issues != nil && issues.Err() != nil {
		return nil, issues.Err()
	}
	return env.Program(ast,
		cel.CostLimit(celconfig.PerCallLimit),
		cel.CostTracking(&library.CostEstimator{SizeEstimator: sizes(question.Sizes)}),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency))
}
