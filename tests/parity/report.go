// The result: a parity table per kind, the differences grouped by what differs, and the verdict
// against the list of known differences.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Known is one line of known.txt: how often at most which difference is seen, and why.
type Known struct {
	pattern *regexp.Regexp
	text    string
	Reason  string
	limit   int
	// seldom: it depends on the machine or on who comes first whether it is seen.
	seldom bool
	seen   int
}

// ReadKnown reads `COUNT SIGNATURE [in CASE]  # REASON` lines, in which * stands for anything, also
// for the count, and the count ? for what may be seen or not. A line without a reason is refused.
func ReadKnown(path string) ([]*Known, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var known []*Known
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		signature, reason, found := strings.Cut(line, "  # ")
		if !found || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: expected `SIGNATURE  # REASON`", path, number)
		}
		count, signature, _ := strings.Cut(strings.TrimSpace(signature), " ")
		limit := math.MaxInt
		if count != "*" && count != "?" {
			if limit, err = strconv.Atoi(count); err != nil {
				return nil, fmt.Errorf("%s:%d: the count: %w", path, number, err)
			}
		}
		if !strings.Contains(signature, " in ") {
			signature += " in *"
		}
		pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(signature), `\*`, ".*") + "$"
		known = append(known, &Known{pattern: regexp.MustCompile(pattern), text: signature, Reason: reason, limit: limit, seldom: count == "?"})
	}
	return known, lines.Err()
}

type row struct{ cases, requests, equal, known, different int }

// Report gathers the outcome of all cases.
type Report struct {
	lock       sync.Mutex
	known      []*Known
	whole      bool // all cases ran, so an unused known line is stale
	rows       map[string]*row
	notServed  []string
	unexpected []Difference
	expected   []Difference
}

// NewReport starts an empty report.
func NewReport(known []*Known, whole bool) *Report {
	return &Report{known: known, whole: whole, rows: map[string]*row{}}
}

// Add compares one case.
func (r *Report) Add(c Case, ours, upstream Transcript) {
	differences := Compare(c, ours, upstream)
	r.lock.Lock()
	defer r.lock.Unlock()
	counts := r.rows[c.Kind]
	if counts == nil {
		counts = &row{}
		r.rows[c.Kind] = counts
	}
	counts.cases++
	counts.requests += len(upstream)
	unexpected := false
	for _, difference := range differences {
		if r.isKnown(difference) {
			r.expected = append(r.expected, difference)
		} else {
			unexpected = true
			r.unexpected = append(r.unexpected, difference)
		}
	}
	switch {
	case unexpected:
		counts.different++
	case len(differences) > 0:
		counts.known++
	default:
		counts.equal++
	}
}

// slack allows for cases that race with a server's own cache and come out either way.
func slack(limit int) int { return 3 + limit/10 }

func (r *Report) isKnown(difference Difference) bool {
	for _, known := range r.known {
		if known.pattern.MatchString(difference.Signature() + " in " + difference.Case) {
			known.seen++
			return known.limit == math.MaxInt || known.seen <= known.limit+slack(known.limit)
		}
	}
	return false
}

// Print writes the table and the grouped differences.
func (r *Report) Print(out io.Writer) {
	fmt.Fprintf(out, "%-34s %7s %9s %7s %7s %10s %8s\n", "KIND", "CASES", "REQUESTS", "EQUAL", "KNOWN", "DIFFERENT", "PARITY")
	var total row
	line := func(name string, counts row) {
		fmt.Fprintf(out, "%-34s %7d %9d %7d %7d %10d %7.1f%%\n", name, counts.cases, counts.requests, counts.equal, counts.known,
			counts.different, 100*float64(counts.equal)/float64(max(1, counts.cases)))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.rows)) {
		counts := *r.rows[kind]
		line(kind, counts)
		total.cases += counts.cases
		total.requests += counts.requests
		total.equal += counts.equal
		total.known += counts.known
		total.different += counts.different
	}
	line("total", total)
	for _, kind := range r.notServed {
		fmt.Fprintln(out, "not served:", kind)
	}
	groups := group(r.unexpected)
	fmt.Fprintf(out, "\n%d differences in %d groups\n", len(r.unexpected), len(groups))
	for i, group := range groups {
		if i == 80 {
			fmt.Fprintf(out, "… and %d more groups, in the full report\n", len(groups)-i)
			break
		}
		printGroup(out, group, 1, 240)
	}
}

func printGroup(out io.Writer, group []Difference, examples, width int) {
	fmt.Fprintf(out, "\n%4d × %s\n", len(group), group[0].Signature())
	for _, example := range group[:min(examples, len(group))] {
		fmt.Fprintf(out, "       case %s, %s\n       upstream %s\n       ours     %s\n", example.Case,
			clip(example.Request, width), clip(example.Upstream, width), clip(example.Ours, width))
	}
}

func clip(text string, width int) string {
	text = strings.ReplaceAll(text, "\n", "⏎")
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width]) + "…"
	}
	return text
}

func group(differences []Difference) [][]Difference {
	byShape := map[string][]Difference{}
	for _, difference := range differences {
		byShape[difference.Shape()] = append(byShape[difference.Shape()], difference)
	}
	groups := slices.Collect(maps.Values(byShape))
	slices.SortFunc(groups, func(a, b []Difference) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a[0].Shape(), b[0].Shape()))
	})
	return groups
}

// Write keeps every difference: grouped for people, one JSON line each for tools.
func (r *Report) Write(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	grouped, err := os.Create(filepath.Join(directory, "differences.txt"))
	if err != nil {
		return err
	}
	defer grouped.Close()
	for _, group := range group(r.unexpected) {
		printGroup(grouped, group, 12, 1200)
	}
	if err := r.writeCandidates(filepath.Join(directory, "unknown.txt")); err != nil {
		return err
	}
	lines, err := os.Create(filepath.Join(directory, "differences.jsonl"))
	if err != nil {
		return err
	}
	defer lines.Close()
	encoder := json.NewEncoder(lines)
	for _, difference := range append(slices.Clone(r.unexpected), r.expected...) {
		if err := encoder.Encode(difference); err != nil {
			return err
		}
	}
	return nil
}

// writeCandidates keeps what is not known in the form of known.txt, for whoever must decide
// between mending and listing it.
func (r *Report) writeCandidates(path string) error {
	counts := map[string]int{}
	example := map[string]Difference{}
	for _, difference := range r.unexpected {
		counts[difference.Signature()]++
		example[difference.Signature()] = difference
	}
	var text strings.Builder
	for _, signature := range slices.Sorted(maps.Keys(counts)) {
		shown := example[signature]
		fmt.Fprintf(&text, "%d %s  # not mended yet, e.g. upstream %s, ours %s\n", counts[signature], signature, clip(shown.Upstream, 60), clip(shown.Ours, 60))
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}

// Verdict fails on a difference that is not known and on a known one that is gone.
func (r *Report) Verdict() error {
	var problems []error
	if len(r.unexpected) > 0 {
		problems = append(problems, fmt.Errorf("%d differences are not in the list of known ones", len(r.unexpected)))
	}
	if r.whole {
		for _, known := range r.known {
			if known.seldom {
				continue
			}
			if known.seen == 0 && known.limit > slack(0) {
				problems = append(problems, fmt.Errorf("no longer differs, remove it from the list: %s", known.text))
			} else if known.seen+slack(known.limit) < known.limit && known.limit != math.MaxInt {
				fmt.Printf("differs less often, lower it in the list to %d: %s\n", known.seen, known.text)
			}
		}
	}
	return errors.Join(problems...)
}
