// Command kinds prints the table of kinds that the crate `api` embeds, those that are generally
// available and those that can be switched on: names, scope, verbs, subresources, short names,
// categories and table columns. The facts are asked of a real kube-apiserver, started on a real etcd
// for the purpose:
//
//	go run ./kinds --kube-apiserver PATH > ../../crates/api/src/catalogue/kinds.tbl
//
// The format is described in crates/api/src/catalogue/table.rs, its only reader.
package main

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// stable matches the versions that are generally available.
var stable = regexp.MustCompile(`^v[0-9]+$`)

// onDemand are the versions that are not generally available and can be switched on, with the
// feature gates that they need.
var onDemand = map[string]string{"storagemigration.k8s.io/v1beta1": "StorageVersionMigrator"}

type discovery struct{ Items []group }

type group struct {
	Metadata struct{ Name string }
	Versions []struct {
		Version   string
		Resources []resource
	}
}

type groupVersionKind struct{ Group, Version, Kind string }

type resource struct {
	Resource, SingularResource, Scope string
	ResponseKind                      groupVersionKind
	Verbs, ShortNames, Categories     []string
	Subresources                      []subresource
}

type subresource struct {
	Subresource  string
	ResponseKind groupVersionKind
	Verbs        []string
}

type table struct {
	ColumnDefinitions []struct {
		Name, Type, Format string
		Priority           int
	}
}

func main() {
	etcd := flag.String("etcd", "etcd", "the etcd to start")
	server := flag.String("kube-apiserver", "kube-apiserver", "the kube-apiserver to ask")
	flag.Parse()
	asked, err := start(*etcd, *server)
	if err == nil {
		err = asked.print()
	}
	asked.stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kinds: %v\n", err)
		os.Exit(1)
	}
}

// print writes a K line per kind, followed by an S line per subresource and a C line per column.
func (s *server) print() error {
	out := bufio.NewWriter(os.Stdout)
	for _, root := range []string{"/api", "/apis"} {
		var found discovery
		if err := s.get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", &found); err != nil {
			return err
		}
		slices.SortFunc(found.Items, func(a, b group) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
		for _, group := range found.Items {
			for _, version := range group.Versions {
				_, switchedOn := onDemand[group.Metadata.Name+"/"+version.Version]
				if !stable.MatchString(version.Version) && !switchedOn {
					continue
				}
				slices.SortFunc(version.Resources, func(a, b resource) int { return cmp.Compare(a.Resource, b.Resource) })
				for _, resource := range version.Resources {
					path := root + "/" + version.Version
					if root == "/apis" {
						path = root + "/" + group.Metadata.Name + "/" + version.Version
					}
					if err := s.printKind(out, path, group.Metadata.Name, version.Version, resource); err != nil {
						return err
					}
				}
			}
		}
	}
	return out.Flush()
}

func (s *server) printKind(out *bufio.Writer, path, group, version string, found resource) error {
	fmt.Fprintf(out, "K\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", group, version, found.ResponseKind.Kind, found.Resource,
		found.SingularResource, found.Scope[:1], joined(found.Verbs), joined(found.ShortNames), joined(found.Categories))
	slices.SortFunc(found.Subresources, func(a, b subresource) int { return cmp.Compare(a.Subresource, b.Subresource) })
	for _, below := range found.Subresources {
		kind := below.ResponseKind
		// A subresource without a group of its own has its object's.
		if kind.Version == "" {
			kind.Group, kind.Version = group, version
		}
		fmt.Fprintf(out, "S\t%s\t%s\t%s\t%s\t%s\n", below.Subresource, kind.Group, kind.Version, kind.Kind, joined(below.Verbs))
	}
	if !slices.Contains(found.Verbs, "list") {
		return nil
	}
	var columns table
	if err := s.get(path+"/"+found.Resource, "application/json;as=Table;g=meta.k8s.io;v=v1", &columns); err != nil {
		return err
	}
	for _, column := range columns.ColumnDefinitions {
		fmt.Fprintf(out, "C\t%s\t%s\t%s\t%d\n", column.Name, column.Type, column.Format, column.Priority)
	}
	return nil
}

func joined(words []string) string {
	slices.Sort(words)
	return strings.Join(words, ",")
}

// server is a running kube-apiserver with its etcd.
type server struct {
	directory, url, token string
	processes             []*exec.Cmd
	client                http.Client
}

func start(etcd, kubeAPIServer string) (*server, error) {
	s := &server{}
	directory, err := os.MkdirTemp("", "tables-")
	if err != nil {
		return s, err
	}
	s.directory = directory
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	s.token = hex.EncodeToString(secret)
	tokens := filepath.Join(directory, "tokens")
	if err := os.WriteFile(tokens, []byte(s.token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return s, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return s, err
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return s, err
	}
	keyFile := filepath.Join(directory, "key")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600); err != nil {
		return s, err
	}
	ports := make([]int, 3)
	for index := range ports {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return s, err
		}
		defer listener.Close()
		ports[index] = listener.Addr().(*net.TCPAddr).Port
		listener.Close()
	}
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	if err := s.run("etcd", etcd, "--data-dir", filepath.Join(directory, "etcd"), "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer); err != nil {
		return s, err
	}
	var versions, gates []string
	for version, gate := range onDemand {
		versions, gates = append(versions, version+"=true"), append(gates, gate+"=true")
	}
	if err := s.run("kube-apiserver", kubeAPIServer, "--runtime-config", strings.Join(versions, ","),
		"--feature-gates", strings.Join(gates, ","), "--etcd-servers", client, "--cert-dir", directory,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]), "--token-auth-file", tokens,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", keyFile,
		"--service-account-signing-key-file", keyFile, "--authorization-mode", "RBAC"); err != nil {
		return s, err
	}
	s.url = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	// The server made its own certificate a moment ago, on this machine.
	s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	for range 600 {
		if err = s.get("/readyz", "", nil); err == nil {
			return s, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return s, fmt.Errorf("kube-apiserver did not become ready: %w", err)
}

func (s *server) run(log, name string, arguments ...string) error {
	file, err := os.Create(filepath.Join(s.directory, log+".log"))
	if err != nil {
		return err
	}
	command := exec.Command(name, arguments...)
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, command)
	return nil
}

// stop ends what was started, the API server first, and removes its files.
func (s *server) stop() {
	slices.Reverse(s.processes)
	for _, process := range s.processes {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	_ = os.RemoveAll(s.directory)
}

func (s *server) get(path, accept string, into any) error {
	request, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Accept", accept)
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
