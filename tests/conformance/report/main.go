// The conformance report: reads the suite's JUnit file and prints what passed, failed and was
// skipped per SIG and per file of the suite, each test's time (beside that of another run, if
// there is one) and the failures grouped by what they say. With --gate it fails unless every test
// of the list passed.
package main

import (
	"bufio"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v2"
)

func main() {
	names := flag.String("list", "", "print the names of the tests this e2e.test holds, and stop")
	junit := flag.String("junit", "", "folder with the JUnit report")
	suite := flag.String("suite", "", "the e2e.test that ran, which knows the file of each test")
	beside := flag.String("beside", "", "folder with the JUnit report of another run of the same tests")
	gate := flag.String("gate", "", "file with the tests that must have passed")
	focus := flag.String("focus", "", "the focus that was given, for the reasons of skipping")
	skip := flag.String("skip", "", "the skip that was given, for the reasons of skipping")
	flag.Bool("selected", true, "no gate: report what was selected")
	flag.Parse()
	var err error
	if *names != "" {
		err = printNames(*names)
	} else {
		err = report(*junit, *suite, *beside, *gate, *focus, *skip)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

type conformanceTest struct {
	Codename string `yaml:"codename"`
	File     string `yaml:"file"`
}

func list(binary string) (tests []conformanceTest, err error) {
	output, err := exec.Command(binary, "--list-conformance-tests").Output()
	if err != nil {
		return nil, err
	}
	return tests, yaml.Unmarshal(output, &tests)
}

func printNames(binary string) error {
	tests, err := list(binary)
	if err != nil {
		return err
	}
	perSIG := map[string]int{}
	for _, test := range tests {
		fmt.Println(test.Codename)
		perSIG[sig(test.Codename)]++
	}
	fmt.Fprintf(os.Stderr, "%d tests: %v\n", len(tests), perSIG)
	return nil
}

type suites struct {
	Suites []struct {
		Cases []testcase `xml:"testcase"`
	} `xml:"testsuite"`
}

type testcase struct {
	Name    string  `xml:"name,attr"`
	Status  string  `xml:"status,attr"`
	Time    float64 `xml:"time,attr"`
	Failure *text   `xml:"failure"`
	Error   *text   `xml:"error"`
	Skipped *text   `xml:"skipped"`
}

type text struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Content string `xml:",chardata"`
}

type counts struct{ passed, failed, skipped, left int }

func report(directory, suite, beside, gate, focus, skip string) error {
	cases, suiteFailures, err := read(directory)
	if err != nil {
		return err
	}
	perSIG := map[string]*counts{}
	var ran, failed, skipped []testcase
	for _, test := range cases {
		count := perSIG[sig(test.Name)]
		if count == nil {
			count = &counts{}
			perSIG[sig(test.Name)] = count
		}
		switch {
		case test.Status == "passed":
			count.passed++
			ran = append(ran, test)
		case test.Failure != nil || test.Error != nil:
			count.failed++
			ran = append(ran, test)
			failed = append(failed, test)
		case test.Skipped != nil && strings.Contains(test.Skipped.Message, "skipped - "):
			count.skipped++
			skipped = append(skipped, test)
		default:
			count.left++
		}
	}
	others := map[string]float64{}
	if beside != "" {
		otherCases, _, err := read(beside)
		if err != nil {
			return err
		}
		for _, test := range otherCases {
			if test.Status == "passed" {
				others[test.Name] = test.Time
			}
		}
	}
	fmt.Println("\nTimes" + strings.Repeat(" (beside: the other run's, where it passed)", min(1, len(others))))
	sort.Slice(ran, func(i, j int) bool { return ran[i].Time > ran[j].Time })
	for _, test := range ran {
		fmt.Printf("%8.1f s %s %-6s  %s\n", test.Time, otherTime(others, test.Name), test.Status, test.Name)
	}
	for _, test := range skipped {
		fmt.Printf("   skipped by the suite: %s: %s\n", test.Name, test.Skipped.Message)
	}
	printFailures(failed)
	for _, failure := range suiteFailures {
		fmt.Printf("\nThe suite itself failed: %s\n%s\n", failure.Name, indent(said(failure), 30))
	}
	if suite != "" {
		if err := printFiles(suite, ran, skipped, others); err != nil {
			return err
		}
	}
	printTable(perSIG, focus, skip)
	if gate != "" {
		return checkGate(gate, cases)
	}
	if len(suiteFailures) > 0 {
		return errors.New("the suite did not run")
	}
	return nil
}

// read returns the conformance tests and the failures that belong to no test.
func read(directory string) (cases, suiteFailures []testcase, err error) {
	files, err := filepath.Glob(filepath.Join(directory, "junit*.xml"))
	if err != nil {
		return nil, nil, err
	}
	if len(files) == 0 {
		fmt.Println("The run was cut short: there is no JUnit report. What follows is read from its log.")
		cases, err = readLog(filepath.Join(directory, "e2e.log"))
		if err == nil && len(cases) == 0 {
			err = fmt.Errorf("the suite did not start, see %s", filepath.Join(directory, "e2e.log"))
		}
		return cases, nil, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		var parsed suites
		if err := xml.Unmarshal(content, &parsed); err != nil {
			return nil, nil, err
		}
		for _, suite := range parsed.Suites {
			for _, test := range suite.Cases {
				if strings.Contains(test.Name, "[Conformance]") {
					test.Name = strings.TrimPrefix(test.Name, "[It] ")
					cases = append(cases, test)
				} else if test.Failure != nil || test.Error != nil {
					suiteFailures = append(suiteFailures, test)
				}
			}
		}
	}
	return cases, suiteFailures, nil
}

func otherTime(others map[string]float64, name string) string {
	if len(others) == 0 {
		return ""
	}
	if seconds, passed := others[name]; passed {
		return fmt.Sprintf("%8.1f s", seconds)
	}
	return "         -"
}

// printFiles counts per source file of the suite; times are summed over the tests that passed in
// both runs.
func printFiles(suite string, ran, skipped []testcase, others map[string]float64) error {
	tests, err := list(suite)
	if err != nil {
		return err
	}
	files := map[string]string{}
	for _, test := range tests {
		file, _, _ := strings.Cut(test.File, ",")
		files[test.Codename] = strings.TrimPrefix(strings.TrimSpace(file), "test/e2e/")
	}
	type sum struct {
		counts
		both        int
		ours, other float64
	}
	perFile := map[string]*sum{}
	of := func(test testcase) *sum {
		file := files[test.Name]
		if perFile[file] == nil {
			perFile[file] = &sum{}
		}
		return perFile[file]
	}
	total := &sum{}
	for _, test := range ran {
		for _, count := range []*sum{of(test), total} {
			if test.Status != "passed" {
				count.failed++
				continue
			}
			count.passed++
			if other, passed := others[test.Name]; passed {
				count.both++
				count.ours += test.Time
				count.other += other
			}
		}
	}
	for _, test := range skipped {
		of(test).skipped++
		total.skipped++
	}
	print := func(file string, count *sum) {
		fmt.Printf("%-52s %7d %7d %8d", file, count.passed, count.failed, count.skipped)
		if count.both > 0 {
			fmt.Printf(" %9.1f s %9.1f s (%d in both)", count.ours, count.other, count.both)
		}
		fmt.Println()
	}
	fmt.Printf("\n%-52s %7s %7s %8s\n", "FILE", "PASSED", "FAILED", "SKIPPED")
	for _, file := range slices.Sorted(maps.Keys(perFile)) {
		print(file, perFile[file])
	}
	print("total", total)
	return nil
}

func printTable(perSIG map[string]*counts, focus, skip string) {
	fmt.Printf("\n%-20s %7s %7s %8s %13s\n", "SIG", "PASSED", "FAILED", "SKIPPED", "NOT SELECTED")
	var total counts
	for _, name := range slices.Sorted(maps.Keys(perSIG)) {
		count := perSIG[name]
		fmt.Printf("%-20s %7d %7d %8d %13d\n", name, count.passed, count.failed, count.skipped, count.left)
		total.passed += count.passed
		total.failed += count.failed
		total.skipped += count.skipped
		total.left += count.left
	}
	fmt.Printf("%-20s %7d %7d %8d %13d\n", "total", total.passed, total.failed, total.skipped, total.left)
	if total.left > 0 {
		fmt.Printf("Not selected by FOCUS=%q SKIP=%q, or the run ended before them.\n", focus, skip)
	}
}

var (
	variable = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|"[^"]*"|[a-z0-9-]+-\d+\b|\d+|0x[0-9a-f]+`)
	noise    = regexp.MustCompile(`(?m)^\s*(In \[|> Enter|< Exit|\[TIMEDOUT\]|There were additional).*$`)
)

// printFailures groups by the first line of what a failure says, without its numbers and names.
func printFailures(failed []testcase) {
	groups := map[string][]testcase{}
	for _, test := range failed {
		cause := variable.ReplaceAllString(firstLine(said(test)), "…")
		groups[cause] = append(groups[cause], test)
	}
	causes := slices.Collect(maps.Keys(groups))
	sort.Slice(causes, func(i, j int) bool { return len(groups[causes[i]]) > len(groups[causes[j]]) })
	if len(failed) > 0 {
		fmt.Printf("\n%d failures, by cause\n", len(failed))
	}
	for _, cause := range causes {
		fmt.Printf("\n%3d × %s\n", len(groups[cause]), cause)
		fmt.Println(indent(said(groups[cause][0]), 6))
		for _, test := range groups[cause] {
			fmt.Printf("      - %s\n", test.Name)
		}
	}
}

func said(test testcase) string {
	for _, part := range []*text{test.Failure, test.Error} {
		if part != nil {
			return strings.TrimSpace(noise.ReplaceAllString(part.Content, ""))
		}
	}
	return ""
}

func firstLine(content string) string {
	for _, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && line != "{" && !strings.HasPrefix(line, "[FAILED]") || strings.HasPrefix(line, "[FAILED] ") && len(line) > 10 {
			if len(line) > 160 {
				line = line[:160]
			}
			return line
		}
	}
	return "(nothing said)"
}

func indent(content string, lines int) string {
	var kept []string
	for _, line := range strings.Split(content, "\n") {
		if line = strings.TrimRight(line, " "); line != "" && len(kept) < lines {
			kept = append(kept, "        "+line[:min(len(line), 300)])
		}
	}
	return strings.Join(kept, "\n")
}

func checkGate(file string, cases []testcase) error {
	passed := map[string]bool{}
	for _, test := range cases {
		passed[test.Name] = test.Status == "passed"
	}
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	defer opened.Close()
	var missing []string
	lines := bufio.NewScanner(opened)
	for lines.Scan() {
		if name := strings.TrimSpace(lines.Text()); name != "" && !strings.HasPrefix(name, "#") && !passed[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d tests that must stay green did not pass:\n  %s", len(missing), strings.Join(missing, "\n  "))
	}
	fmt.Println("Every test of the gate passed.")
	return nil
}

func sig(name string) string {
	if strings.HasPrefix(name, "[sig-") {
		if end := strings.Index(name, "]"); end > 0 {
			return name[1:end]
		}
	}
	return "(none)"
}
