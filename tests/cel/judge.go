// Compares the two sides case by case.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// judge asks both sides all cases and prints where they differ. It answers with the exit code.
func judge(arguments []string) int {
	flags := flag.NewFlagSet("judge", flag.ExitOnError)
	subject := flags.String("subject", "", "the program that answers for us")
	count := flags.Int("generated", 100000, "how many expressions are generated")
	seed := flags.Uint64("seed", 1, "what they are generated from")
	known := flags.String("known", "", "file of the differences that are known")
	shown := flags.Int("show", 20, "how many differences of each kind are shown")
	only := flags.String("only", "", "specification, documentation, tests or generated")
	flags.Parse(arguments)

	differences, err := readKnown(*known)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	program, err := start(*subject)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer program.stop()
	failed := 0
	for _, source := range []struct {
		name string
		read func() ([]Case, error)
	}{
		{"specification", specification},
		{"documentation", inDocumentation},
		{"tests", quotedInTests},
		{"generated", func() ([]Case, error) { return generated(*seed, *count), nil }},
	} {
		if *only != "" && *only != source.name {
			continue
		}
		cases, err := source.read()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		result, err := compare(program, cases, differences, *shown)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("%s: %d cases, %d compile, %d have a value, %d differ (%v), %d known differences, upstream crashes in %d\n",
			source.name, len(cases), result.compiled, result.valued, result.different, result.kinds, result.known, result.crashed)
		failed += result.different
	}
	for _, difference := range differences {
		if difference.met == 0 && *only == "" {
			fmt.Printf("known difference that no case shows: %s\n", difference.reason)
		}
	}
	if failed > 0 {
		return 1
	}
	return 0
}

type comparison struct {
	compiled, valued, different, known, crashed int
	kinds                                       map[string]int
}

func compare(program *subject, cases []Case, known []*knownDifference, shown int) (comparison, error) {
	result := comparison{kinds: map[string]int{}}
	for _, question := range cases {
		theirs := ask(question)
		if theirs.Crash != "" {
			result.crashed++
			if result.crashed <= shown {
				fmt.Printf("upstream crashes: %s: %q\n  %s\n", question.Name, question.Expr, theirs.Crash)
			}
			continue
		}
		ours, err := program.ask(question)
		if err != nil {
			return result, fmt.Errorf("asking %q: %w", question.Expr, err)
		}
		if theirs.Errors == "" {
			result.compiled++
		}
		if theirs.Value != "" {
			result.valued++
		}
		kind := differenceOf(theirs, ours)
		// Go walks maps in another order each time, and the order shows in costs and errors.
		for attempt := 0; kind != "" && strings.Contains(question.Expr, "(") && attempt < 20; attempt++ {
			again := ask(question)
			if differenceOf(theirs, again) == "" {
				continue
			}
			kind = differenceOf(again, ours)
		}
		if kind == "" {
			continue
		}
		if isKnown(known, kind, question, theirs) {
			result.known++
			continue
		}
		result.different++
		result.kinds[kind]++
		if result.kinds[kind] <= shown {
			show(kind, question, theirs, ours)
		}
	}
	return result, nil
}

// differenceOf names the first thing in which two answers differ.
func differenceOf(theirs, ours Answer) string {
	cost := func(of *uint64) string {
		if of == nil {
			return ""
		}
		return fmt.Sprint(*of)
	}
	switch {
	case ours.Crash != "":
		return "crash"
	case (theirs.Errors == "") != (ours.Errors == ""):
		return "compiles"
	case theirs.Errors != ours.Errors:
		return "errors"
	case theirs.Type != ours.Type:
		return "type"
	case theirs.Value != ours.Value:
		return "value"
	case theirs.Error != ours.Error:
		return "error"
	case theirs.Estimate != ours.Estimate:
		return "estimate"
	case cost(theirs.Cost) != cost(ours.Cost):
		return "cost"
	}
	return ""
}

func show(kind string, question Case, theirs, ours Answer) {
	write := func(name string, of any) {
		text, err := json.Marshal(of)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Printf("  %s %s\n", name, text)
	}
	fmt.Printf("%s: %s\n  %q\n", kind, question.Name, question.Expr)
	write("theirs", theirs)
	write("ours  ", ours)
}

// A knownDifference is a line of known.txt: kind, regular expression over the expression and
// upstream's answer, reason; separated by tabs.
type knownDifference struct {
	kind   string
	match  *regexp.Regexp
	reason string
	met    int
}

func readKnown(file string) ([]*knownDifference, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var known []*knownDifference
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("%s: three columns are wanted: %q", file, line)
		}
		match, err := regexp.Compile(columns[1])
		if err != nil {
			return nil, err
		}
		known = append(known, &knownDifference{kind: columns[0], match: match, reason: columns[2]})
	}
	return known, nil
}

func isKnown(known []*knownDifference, kind string, question Case, theirs Answer) bool {
	for _, difference := range known {
		text := question.Expr + "\n" + theirs.Errors + theirs.Error
		if difference.kind == kind && difference.match.MatchString(text) {
			difference.met++
			return true
		}
	}
	return false
}

// A subject is the other side: a program that answers cases from its standard input.
type subject struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
}

func start(program string) (*subject, error) {
	command := exec.Command(program)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	scanner := bufio.NewScanner(output)
	scanner.Buffer(nil, 64<<20)
	return &subject{command: command, input: input, output: scanner}, nil
}

func (program *subject) ask(question Case) (Answer, error) {
	var answer Answer
	text, err := json.Marshal(question)
	if err != nil {
		return answer, err
	}
	if _, err := program.input.Write(append(text, '\n')); err != nil {
		return answer, err
	}
	if !program.output.Scan() {
		return answer, fmt.Errorf("no answer: %w", io.ErrUnexpectedEOF)
	}
	return answer, json.Unmarshal(program.output.Bytes(), &answer)
}

func (program *subject) stop() {
	program.input.Close()
	program.command.Wait()
}
