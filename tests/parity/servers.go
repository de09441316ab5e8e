// Starting and stopping the two sides: etcd with kube-apiserver, and Coracle.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// Several may run on one machine, each with a range of its own; this one is far from where clusters
// choose theirs first.
var serviceRange = "10.192.0.0/16"

// How long both keep history: short, so that its end can be seen.
const compactionInterval = 30 * time.Second

// Servers holds both sides and the processes behind them.
type Servers struct {
	Ours, Upstream *Side
	processes      []*exec.Cmd
	ended          []chan struct{}
	directory      string
	port           int
}

// StartServers starts both sides and waits until each answers /readyz.
func StartServers(options Options) (*Servers, error) {
	directory, err := os.MkdirTemp("", "parity-")
	if err != nil {
		return nil, err
	}
	servers := &Servers{directory: directory}
	servers.Upstream, err = servers.startUpstream(options, "upstream")
	if err == nil {
		if options.UpstreamTwice {
			servers.Ours, err = servers.startUpstream(options, "upstream-again")
		} else {
			servers.Ours, err = servers.startCoracle(options)
		}
	}
	if err != nil {
		servers.Stop()
		return nil, err
	}
	return servers, nil
}

// Stop ends every process that was started and removes its files.
func (s *Servers) Stop() {
	for len(s.processes) > 0 {
		s.stopLast()
	}
	if os.Getenv("PARITY_KEEP") == "" {
		_ = os.RemoveAll(s.directory)
	}
}

// stopLast ends the process that was started last.
func (s *Servers) stopLast() {
	last := len(s.processes) - 1
	_ = s.processes[last].Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended[last]:
	case <-time.After(10 * time.Second):
		_ = s.processes[last].Process.Kill()
		<-s.ended[last]
	}
	s.processes, s.ended = s.processes[:last], s.ended[:last]
}

// Alive says whether all processes are still running.
func (s *Servers) Alive() bool {
	for _, ended := range s.ended {
		select {
		case <-ended:
			return false
		default:
		}
	}
	return true
}

func (s *Servers) start(log string, name string, arguments ...string) error {
	command := exec.Command(name, arguments...)
	file, err := os.Create(filepath.Join(s.directory, log+".log"))
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		_ = file.Close()
		close(ended)
	}()
	s.processes = append(s.processes, command)
	s.ended = append(s.ended, ended)
	return nil
}

func (s *Servers) startUpstream(options Options, name string) (*Side, error) {
	directory := filepath.Join(s.directory, name)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	etcd, err := s.startEtcd(options, name)
	if err != nil {
		return nil, err
	}
	return s.startKubeAPIServer(options, name, etcd)
}

// startEtcd starts an etcd of its own and returns its address.
func (s *Servers) startEtcd(options Options, name string) (string, error) {
	ports, err := freePorts(2)
	if err != nil {
		return "", err
	}
	client := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	err = s.start(name+"-etcd", options.Etcd, "--data-dir", filepath.Join(s.directory, name, "etcd"),
		"--unsafe-no-fsync", "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
	return client, err
}

// startKubeAPIServer starts the API server alone, on an etcd that is there.
func (s *Servers) startKubeAPIServer(options Options, name, etcd string) (*Side, error) {
	directory := filepath.Join(s.directory, name)
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	identity, err := newIdentity(directory)
	if err != nil {
		return nil, err
	}
	err = s.start(name, options.KubeAPIServer, "--etcd-servers", etcd,
		"--cert-dir", directory, "--bind-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(ports[0]),
		"--client-ca-file", identity.authority,
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", identity.keyFile,
		"--service-account-signing-key-file", identity.keyFile,
		"--service-cluster-ip-range", serviceRange,
		"--authorization-mode", "Node,RBAC", "--enable-priority-and-fairness=false",
		"--etcd-compaction-interval", compactionInterval.String(), "--allow-privileged")
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		// The server made its own certificate a moment ago, on this machine.
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{identity.certificate},
	}
	return s.wait(name, fmt.Sprintf("https://127.0.0.1:%d", ports[0]), config)
}

func (s *Servers) startCoracle(options Options, more ...string) (*Side, error) {
	// A data directory keeps its port.
	if s.port == 0 {
		ports, err := freePorts(1)
		if err != nil {
			return nil, err
		}
		s.port = ports[0]
	}
	data := filepath.Join(s.directory, "coracle")
	arguments := append([]string{"server", "--data-dir", data,
		"--port", fmt.Sprint(s.port), "--service-range", serviceRange,
		"--compaction-interval", compactionInterval.String(),
		"--disable", "scheduler,controllers,node,proxy,dns"}, more...)
	err := s.start("coracle-server", options.Coracle, arguments...)
	if err != nil {
		return nil, err
	}
	var kubeconfig []byte
	for range 200 {
		if kubeconfig, err = os.ReadFile(filepath.Join(data, "kubeconfig")); err == nil && len(kubeconfig) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("coracle wrote no kubeconfig: %w\n%s", err, s.log("coracle-server"))
	}
	certificate, err := tls.X509KeyPair(embedded(kubeconfig, "client-certificate-data"), embedded(kubeconfig, "client-key-data"))
	if err != nil {
		return nil, fmt.Errorf("coracle's kubeconfig: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(embedded(kubeconfig, "certificate-authority-data"))
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}
	return s.wait("coracle-server", fmt.Sprintf("https://127.0.0.1:%d", s.port), config)
}

// wait returns the side once its server is ready and has made its namespaces.
func (s *Servers) wait(log, url string, config *tls.Config) (*Side, error) {
	transport := &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: 16, DisableCompression: true}
	anonymous := config.Clone()
	anonymous.Certificates = nil
	side := &Side{
		url:       url,
		client:    &http.Client{Transport: transport, Timeout: 30 * time.Second},
		anonymous: &http.Client{Transport: &http.Transport{TLSClientConfig: anonymous}, Timeout: 30 * time.Second},
	}
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) && s.Alive() {
		if side.Send(Request{Path: "/readyz"}).Code == 200 &&
			side.Send(Request{Path: "/api/v1/namespaces/default"}).Code == 200 {
			return side, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, fmt.Errorf("%s did not become ready\n%s", log, s.log(log))
}

func (s *Servers) log(name string) string {
	text, _ := os.ReadFile(filepath.Join(s.directory, name+".log"))
	return string(text[max(0, len(text)-2000):])
}

// embedded reads one base64 field of a kubeconfig.
func embedded(kubeconfig []byte, field string) []byte {
	found := regexp.MustCompile(`"?` + field + `"?:\s*"?([A-Za-z0-9+/=]+)`).FindSubmatch(kubeconfig)
	if found == nil {
		return nil
	}
	text, _ := base64.StdEncoding.DecodeString(string(found[1]))
	return text
}

func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// identity is an authority of one and the administrator it vouches for.
type identity struct {
	authority, keyFile string
	certificate        tls.Certificate
}

func newIdentity(directory string) (*identity, error) {
	authorityKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "parity"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	administrator := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}},
		NotBefore:    authority.NotBefore, NotAfter: authority.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	authorityDER, err1 := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	administratorDER, err2 := x509.CreateCertificate(rand.Reader, administrator, authority, &key.PublicKey, authorityKey)
	keyDER, err3 := x509.MarshalECPrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	made := &identity{
		authority:   filepath.Join(directory, "ca.crt"),
		keyFile:     filepath.Join(directory, "admin.key"),
		certificate: tls.Certificate{Certificate: [][]byte{administratorDER}, PrivateKey: key},
	}
	return made, errors.Join(
		os.WriteFile(made.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}), 0o600),
		os.WriteFile(made.keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600))
}
