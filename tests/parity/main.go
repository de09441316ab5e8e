// Parity is the differential oracle: it runs the real kube-apiserver on a real etcd beside a
// Coracle server, sends both the same requests, and compares what they answer.
//
// It judges the API alone: scheduler, controllers and nodes are off on both sides.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

func main() {
	var options Options
	flag.StringVar(&options.Coracle, "coracle", "", "the coracle binary")
	flag.StringVar(&options.KubeAPIServer, "kube-apiserver", "", "the kube-apiserver binary")
	flag.StringVar(&options.Etcd, "etcd", "etcd", "the etcd binary")
	flag.StringVar(&options.Objects, "objects", "objects", "folder with a valid object of each kind")
	flag.StringVar(&options.Custom, "custom", "custom", "folder with custom kinds and valid objects of them")
	flag.StringVar(&options.Known, "known", "known.txt", "the list of known differences")
	flag.StringVar(&options.Report, "report", "", "folder for the full report")
	flag.StringVar(&options.Focus, "focus", "", "run only the cases whose name matches")
	flag.IntVar(&options.Workers, "workers", 4, "cases at the same time")
	flag.IntVar(&options.Share, "share", 1, "run one generated case in so many")
	flag.StringVar(&serviceRange, "service-range", serviceRange, "the addresses of Services on both sides")
	flag.BoolVar(&options.UpstreamTwice, "self-test", false, "compare kube-apiserver with a second kube-apiserver")
	flag.BoolVar(&options.SharedEtcd, "shared-etcd", false, "let both serve one etcd in turn instead of comparing answers")
	flag.Parse()
	// The answers of thousands of cases live shortly; a tighter heap leaves room for the servers.
	debug.SetGCPercent(50)
	do := run
	if options.SharedEtcd {
		do = runSharedEtcd
	}
	if err := do(options); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

// Options are the flags.
type Options struct {
	Coracle, KubeAPIServer, Etcd string
	Objects, Custom, Known       string
	Report, Focus                string
	Workers, Share               int
	UpstreamTwice, SharedEtcd    bool
}

func run(options Options) error {
	focus, err := regexp.Compile(options.Focus)
	if err != nil {
		return err
	}
	known, err := ReadKnown(options.Known)
	if err != nil {
		return err
	}
	samples, err := ReadSamples(options.Objects, options.Custom)
	if err != nil {
		return err
	}
	servers, err := StartServers(options)
	if err != nil {
		return err
	}
	defer servers.Stop()

	if err := errors.Join(Define(servers.Ours, samples), Define(servers.Upstream, samples)); err != nil {
		return err
	}
	report := NewReport(known, focus.String() == "" && options.Share == 1)
	served, err := Served(servers.Ours, servers.Upstream, samples, report)
	if err != nil {
		return err
	}
	var cases []Case
	for _, c := range AllCases(served, options.Share) {
		if focus.MatchString(c.Kind + "/" + c.Name) {
			cases = append(cases, c)
		}
	}
	started := time.Now()
	// Those of the server first, while no other makes objects that they would list. The others are
	// mixed, so that those that wait for a watch to end do not all wait at once.
	ofServer := slices.IndexFunc(cases, func(c Case) bool { return !slices.Contains(ofNoKind, c.Kind) })
	ofServer = max(ofServer, 0)
	slices.SortStableFunc(cases[ofServer:], func(a, b Case) int {
		return cmp.Compare(hash(a.Kind+"/"+a.Name), hash(b.Kind+"/"+b.Name))
	})
	runCases(cases[:ofServer], servers, report, options.Workers)
	cases = cases[ofServer:]
	runCases(cases, servers, report, options.Workers)
	fmt.Printf("%d cases in %.0f s\n\n", ofServer+len(cases), time.Since(started).Seconds())
	report.Print(os.Stdout)
	if options.Report != "" {
		if err := report.Write(options.Report); err != nil {
			return err
		}
	}
	if !servers.Alive() {
		return errors.New("a server ended during the run, see its log")
	}
	return report.Verdict()
}

// ofNoKind are what the cases of the server as a whole are filed under.
var ofNoKind = []string{"discovery", "openapi", "server"}

// runCases runs each case on both servers at once and hands the two transcripts to the report.
func runCases(cases []Case, servers *Servers, report *Report, workers int) {
	queue := make(chan Case)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for c := range queue {
				var upstream Transcript
				var side sync.WaitGroup
				side.Go(func() { upstream = c.On(servers.Upstream) })
				ours := c.On(servers.Ours)
				side.Wait()
				report.Add(c, ours, upstream)
			}
		})
	}
	for _, c := range cases {
		queue <- c
	}
	close(queue)
	group.Wait()
}
