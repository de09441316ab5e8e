// How long compiled expressions take, on both sides.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

//go:embed bench.txt
var benchmarks string

// bench measures the evaluations of both sides and prints them side by side.
func bench(arguments []string) int {
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	subject := flags.String("subject", "", "the program that answers for us")
	flags.Parse(arguments)
	program, err := start(*subject)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer program.stop()
	fmt.Printf("%-22s %12s %12s %14s %14s\n", "", "ours ns", "cel-go ns", "ours allocs", "cel-go allocs")
	for _, line := range strings.Split(benchmarks, "\n") {
		name, expression, ok := strings.Cut(line, "\t")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		question := Case{Expr: expression, Declare: generatedTypes, Vars: generatedValues, Objects: generatedObjects, Measure: true}
		ours, err := program.ask(question)
		if err != nil || ours.Measured == nil {
			fmt.Fprintf(os.Stderr, "%s: no measurement: %v %s\n", name, err, ours.Errors)
			return 1
		}
		run, err := runner(question)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			return 1
		}
		theirs := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				run()
			}
		})
		fmt.Printf("%-22s %12.0f %12d %14.1f %14d\n", name, ours.Measured.Nanoseconds, theirs.NsPerOp(), ours.Measured.Allocations, theirs.AllocsPerOp())
	}
	return 0
}

// runner compiles an expression and answers with what evaluates it.
func runner(question Case) (func(), error) {
	env, err := questionEnvironment(question)
	if err != nil {
		return nil, err
	}
	program, err := questionProgram(env, question)
	if err != nil {
		return nil, err
	}
	activation, err := questionVariables(question.Vars)
	if err != nil {
		return nil, err
	}
	return func() { program.Eval(activation) }, nil
}

func questionVariables(vars map[string]json.RawMessage) (map[string]any, error) {
	activation := map[string]any{}
	for name, text := range vars {
		value, err := readValue(text)
		if err != nil {
			return nil, err
		}
		activation[name] = value
	}
	return activation, nil
}
