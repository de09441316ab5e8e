// Reading the suite's own output: when a run was cut short, there is no JUnit file.
package main

import (
	"bufio"
	"os"
	"regexp"
	"strconv"
	"strings"
)

var (
	outcome = regexp.MustCompile(`^[•P\-S] (\[[A-Z]+\] )?\[([0-9.]+) seconds\]`)
	labels  = regexp.MustCompile(` \[[^\[\]]*, [^\[\]]*\]$`)
)

// readLog finds the outcome of each test that ended, in ginkgo's verbose output.
func readLog(path string) ([]testcase, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var cases []testcase
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	var ended *testcase
	for lines.Scan() {
		line := lines.Text()
		if found := outcome.FindStringSubmatch(line); found != nil {
			seconds, _ := strconv.ParseFloat(found[2], 64)
			ended = &testcase{Status: "passed", Time: seconds}
			if found[1] != "" {
				ended.Status = "failed"
				ended.Failure = &text{}
			}
			continue
		}
		if ended == nil {
			continue
		}
		if ended.Name == "" {
			ended.Name = labels.ReplaceAllString(strings.Replace(strings.TrimSpace(line), "[It] ", "", 1), "")
			if strings.Contains(ended.Name, "[Conformance]") && ended.Failure == nil {
				cases = append(cases, *ended)
				ended = nil
			} else if !strings.Contains(ended.Name, "[Conformance]") {
				ended = nil
			}
			continue
		}
		if strings.HasPrefix(line, "-----") {
			cases = append(cases, *ended)
			ended = nil
		} else if reason, is := strings.CutPrefix(line, "  [FAILED] "); is && !strings.HasPrefix(reason, "in ") {
			ended.Failure.Content = "[FAILED] " + reason
		}
	}
	return cases, lines.Err()
}
