// The steps of the scenario that upgrade their connection: exec and port-forward, each in the two
// ways client-go knows. There is no falling back from one to the other here.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	exitstatus "k8s.io/client-go/util/exec"
)

type streaming struct{ config *rest.Config }

type executorFor func(location *url.URL) (remotecommand.Executor, error)

func (s *streaming) execOverWebSocket(ctx context.Context, client kubernetes.Interface) error {
	return execBoth(ctx, client, func(location *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, location.String())
	})
}

func (s *streaming) execOverSPDY(ctx context.Context, client kubernetes.Interface) error {
	return execBoth(ctx, client, func(location *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(s.config, http.MethodPost, location)
	})
}

// execBoth runs a command that writes to both outputs and fails, and one that echoes its input.
func execBoth(ctx context.Context, client kubernetes.Interface, executor executorFor) error {
	stdout, stderr, err := run(ctx, client, executor, nil, "sh", "-c", "echo to stdout; echo to stderr >&2; exit 3")
	var exit exitstatus.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		return fmt.Errorf("a command that ends with 3 was reported as %#v", err)
	}
	if stdout != "to stdout\n" || stderr != "to stderr\n" {
		return fmt.Errorf("stdout is %q, stderr is %q", stdout, stderr)
	}
	const input = "line one\nline two\n"
	stdout, stderr, err = run(ctx, client, executor, strings.NewReader(input), "cat")
	if err != nil {
		return fmt.Errorf("echoing stdin: %w", err)
	}
	if stdout != input || stderr != "" {
		return fmt.Errorf("of %q came back %q, and on stderr %q", input, stdout, stderr)
	}
	return nil
}

func run(ctx context.Context, client kubernetes.Interface, executor executorFor, stdin io.Reader, command ...string) (string, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	options := &core.PodExecOptions{Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true}
	location := client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("hello").
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	remote, err := executor(location)
	if err != nil {
		return "", "", err
	}
	var stdout, stderr bytes.Buffer
	err = remote.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	return stdout.String(), stderr.String(), err
}

func (s *streaming) forwardOverWebSocket(ctx context.Context, client kubernetes.Interface) error {
	dialer, err := portforward.NewSPDYOverWebsocketDialer(portforwardLocation(client), s.config)
	if err != nil {
		return err
	}
	return forward(ctx, dialer)
}

func (s *streaming) forwardOverSPDY(ctx context.Context, client kubernetes.Interface) error {
	transport, upgrader, err := spdy.RoundTripperFor(s.config)
	if err != nil {
		return err
	}
	location := portforwardLocation(client)
	return forward(ctx, spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, location))
}

func portforwardLocation(client kubernetes.Interface) *url.URL {
	return client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("hello").SubResource("portforward").URL()
}

// forward fetches the pod's page twice, through two connections of one forwarding.
func forward(ctx context.Context, dialer httpstream.Dialer) error {
	stop, ready := make(chan struct{}), make(chan struct{})
	var problems bytes.Buffer
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, &problems)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return fmt.Errorf("forwarding ended before it began: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	var failure error
	for range 2 {
		answer, err := ask(fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		if err != nil {
			failure = err
		} else if !strings.HasPrefix(answer, "HTTP/1.") || !strings.Contains(answer, "Coracle carries you across.") {
			failure = fmt.Errorf("the pod answered %q", answer)
		}
	}
	close(stop)
	if err := <-ended; failure == nil {
		failure = err
	}
	if failure != nil {
		return fmt.Errorf("%w %s", failure, problems.String())
	}
	return nil
}

func ask(address string) (string, error) {
	connection, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(connection, "GET /index.html HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(connection)
	return string(answer), err
}
