// One etcd, served in turn by kube-apiserver, by Coracle, and by kube-apiserver again: each must read
// what the other wrote, byte for byte in JSON, and neither may hand out what the other has given away.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const sharedNamespace = "shared"

// shared is one run: what was written so far, by path, and what was found wrong.
type shared struct {
	options  Options
	servers  *Servers
	etcd     string
	samples  []*Sample
	objects  map[string]any
	problems []string
	refused  []string
	compared int
}

func runSharedEtcd(options Options) error {
	samples, err := ReadSamples(options.Objects)
	if err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "shared-etcd-")
	if err != nil {
		return err
	}
	run := &shared{options: options, servers: &Servers{directory: directory}, objects: map[string]any{}}
	defer run.servers.Stop()
	for _, sample := range samples {
		if !sample.PostOnly {
			run.samples = append(run.samples, sample)
		}
	}
	if err := os.MkdirAll(filepath.Join(directory, "upstream"), 0o700); err != nil {
		return err
	}
	if run.etcd, err = run.servers.startEtcd(options, "upstream"); err != nil {
		return err
	}
	if err := run.turns(); err != nil {
		return err
	}
	for _, text := range run.refused {
		fmt.Println("not made:", text)
	}
	for _, text := range run.problems {
		fmt.Println("DIFFERENT:", text)
	}
	fmt.Printf("%d objects of %d kinds, %d comparisons, %d differences\n",
		len(run.objects), len(run.samples), run.compared, len(run.problems))
	if len(run.problems) > 0 {
		return errors.New("the two do not agree about one etcd")
	}
	return nil
}

// turns is the whole conversation; after each turn the server is stopped.
func (r *shared) turns() error {
	upstream, err := r.servers.startKubeAPIServer(r.options, "upstream", r.etcd)
	if err != nil {
		return err
	}
	// Coracle serves only a part of what upstream does; the rest must stay as it is.
	kinds := resources(upstream)
	upstream.ensureNamespace(sharedNamespace)
	r.create(upstream, "upstream")
	r.read(upstream)
	listed := r.lists(upstream, kinds)
	raw := r.keys("/registry/ranges/")
	r.servers.stopLast()

	ours, err := r.servers.startCoracle(r.options, "--store", "etcd", "--etcd-servers", r.etcd)
	if err != nil {
		return err
	}
	r.compare("coracle reads", ours)
	r.compareLists(ours, listed)
	r.refuseTaken("coracle", ours)
	r.create(ours, "coracle")
	r.change(ours, "coracle")
	r.read(ours)
	for key, value := range r.keys("/registry/ranges/") {
		if raw[key] != value {
			r.problem("coracle changed %s", key)
		}
	}
	r.checkForms()
	r.servers.stopLast()

	upstream, err = r.servers.startKubeAPIServer(r.options, "upstream", r.etcd)
	if err != nil {
		return err
	}
	r.compare("upstream reads", upstream)
	r.refuseTaken("upstream", upstream)
	r.change(upstream, "upstream-again")
	r.read(upstream)
	r.servers.stopLast()

	if ours, err = r.servers.startCoracle(r.options, "--store", "etcd", "--etcd-servers", r.etcd); err != nil {
		return err
	}
	r.compare("coracle reads again", ours)
	r.remove(ours)
	r.servers.stopLast()
	return nil
}

func (r *shared) problem(format string, arguments ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, arguments...))
}

// create makes every sample object.
func (r *shared) create(side *Side, who string) {
	for _, sample := range r.samples {
		for index := range sample.Objects {
			name := fmt.Sprintf("%s-%d-%s", sample.Place, index, who)
			switch sample.Resource {
			case "ipaddresses":
				name = fmt.Sprintf("192.168.%d.%d", len(who), index+1)
			case "servicecidrs":
				if who != "upstream" {
					continue
				}
			}
			object := sample.Object(index, name, sharedNamespace)
			answer := side.Send(Request{Method: "POST", Path: sample.Path(sharedNamespace), Body: object})
			if answer.Code != http.StatusCreated {
				r.refused = append(r.refused, fmt.Sprintf("%s by %s: %d %s", name, who, answer.Code, Text(answer.Body, "message")))
				continue
			}
			r.objects[sample.Path(sharedNamespace)+"/"+Text(answer.Body, "metadata", "name")] = nil
		}
	}
}

// read remembers every object as this side shows it.
func (r *shared) read(side *Side) {
	for path := range r.objects {
		answer := side.Send(Request{Path: path})
		if answer.Code != http.StatusOK {
			r.problem("%s cannot be read where it was written: %d %s", path, answer.Code, Text(answer.Body, "message"))
		}
		r.objects[path] = answer.Body
	}
}

// compare reads every object and holds it against what the other side showed.
func (r *shared) compare(what string, side *Side) {
	for path, expected := range r.objects {
		r.same(what+" "+path, side.Send(Request{Path: path}).Body, expected)
	}
}

func (r *shared) same(what string, found, expected any) {
	r.compared++
	if text(found) == text(expected) {
		return
	}
	diff("", found, expected, false, func(path string, left, right any) {
		r.problem("%s: %s is %s, was written as %s", what, path, brief(left), brief(right))
	})
}

// change annotates every object.
func (r *shared) change(side *Side, who string) {
	for path := range r.objects {
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"changed-by": who}}}
		answer := side.Send(Request{Method: "PATCH", Path: path, ContentType: mergePatch, Body: patch})
		if answer.Code != http.StatusOK {
			r.problem("%s cannot be changed by %s: %d %s", path, who, answer.Code, Text(answer.Body, "message"))
		}
	}
}

// remove deletes every object but those that wait for a finalizer.
func (r *shared) remove(side *Side) {
	for path := range r.objects {
		answer := side.Send(Request{Method: "DELETE", Path: path, Query: "gracePeriodSeconds=0"})
		if answer.Code != http.StatusOK && answer.Code != http.StatusAccepted && answer.Code != http.StatusNotFound {
			r.problem("%s cannot be deleted: %d %s", path, answer.Code, Text(answer.Body, "message"))
		}
	}
}

// lists takes every list of the cluster, what the server itself made included.
func (r *shared) lists(side *Side, kinds map[string]bool) map[string]any {
	found := map[string]any{}
	for path := range kinds {
		answer := side.Send(Request{Path: path})
		if answer.Code == http.StatusOK && strings.HasSuffix(Text(answer.Body, "kind"), "List") {
			found[path] = answer.Body
		}
	}
	return found
}

func (r *shared) compareLists(side *Side, lists map[string]any) {
	served := resources(side)
	for path, list := range lists {
		if !served[path] {
			continue
		}
		ours := map[string]any{}
		items, _ := Get(side.Send(Request{Path: path}).Body, "items").([]any)
		for _, item := range items {
			ours[Text(item, "metadata", "namespace")+"/"+Text(item, "metadata", "name")] = item
		}
		items, _ = Get(list, "items").([]any)
		for _, item := range items {
			name := Text(item, "metadata", "namespace") + "/" + Text(item, "metadata", "name")
			switch {
			case name == "default/kubernetes" && strings.Contains(path, "endpoint"):
				// Each server says there where it is itself.
			case strings.HasPrefix(name, "kube-system/apiserver-"):
				// Renewed until upstream was stopped.
			default:
				r.same("coracle lists "+path+" "+name, ours[name], item)
			}
		}
	}
}

// refuseTaken asks for addresses and ports that Services have already.
func (r *shared) refuseTaken(who string, side *Side) {
	for path, object := range r.objects {
		if !strings.Contains(path, "/services/") {
			continue
		}
		ask := func(what string, spec map[string]any) {
			service := map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "taken"}, "spec": spec}
			answer := side.Send(Request{Method: "POST", Path: "/api/v1/namespaces/" + sharedNamespace + "/services", Body: service})
			r.compared++
			if answer.Code != http.StatusUnprocessableEntity {
				r.problem("%s gave %s of %s away again: %d", who, what, path, answer.Code)
				side.Send(Request{Method: "DELETE", Path: "/api/v1/namespaces/" + sharedNamespace + "/services/taken"})
			}
		}
		port := map[string]any{"port": 80}
		if address := Text(object, "spec", "clusterIP"); address != "" && address != "None" {
			ask("address "+address, map[string]any{"clusterIP": address, "ports": []any{port}})
		}
		ports, _ := Get(object, "spec", "ports").([]any)
		for _, taken := range ports {
			if number := Get(taken, "nodePort"); number != nil {
				ask("port "+brief(number), map[string]any{"type": "NodePort", "ports": []any{map[string]any{"port": 80, "nodePort": number}}})
			}
		}
	}
}

// checkForms looks at what lies in etcd: protobuf in its envelope, Events under a lease.
func (r *shared) checkForms() {
	for _, item := range r.rangeOf("/registry/") {
		value, _ := base64.StdEncoding.DecodeString(Text(item, "value"))
		key, _ := base64.StdEncoding.DecodeString(Text(item, "key"))
		r.compared++
		// Custom resources and API services, which are upstream's alone, are JSON.
		if !bytes.HasPrefix(value, []byte("k8s\x00")) && !bytes.HasPrefix(value, []byte("{")) {
			r.problem("%s is neither protobuf nor JSON", key)
		}
		isOurs := bytes.HasSuffix(key, []byte("-coracle"))
		if isOurs && !bytes.HasPrefix(value, []byte("k8s\x00")) {
			r.problem("%s is not protobuf", key)
		}
		if isEvent := strings.HasPrefix(string(key), "/registry/events/"); isEvent != (Text(item, "lease") != "") && !strings.HasPrefix(string(key), "/registry/masterleases/") {
			r.problem("%s: lease %q", key, Text(item, "lease"))
		}
	}
}

// keys are the values below a prefix, as etcd has them.
func (r *shared) keys(prefix string) map[string]string {
	found := map[string]string{}
	for _, item := range r.rangeOf(prefix) {
		found[Text(item, "key")] = Text(item, "value")
	}
	return found
}

// rangeOf reads a prefix through etcd's JSON gateway.
func (r *shared) rangeOf(prefix string) []any {
	end := []byte(prefix)
	end[len(end)-1]++
	body, _ := json.Marshal(map[string]string{
		"key":       base64.StdEncoding.EncodeToString([]byte(prefix)),
		"range_end": base64.StdEncoding.EncodeToString(end),
	})
	response, err := http.Post(r.etcd+"/v3/kv/range", "application/json", bytes.NewReader(body))
	if err != nil {
		r.problem("etcd: %v", err)
		return nil
	}
	defer response.Body.Close()
	var answer any
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		r.problem("etcd: %v", err)
	}
	items, _ := Get(answer, "kvs").([]any)
	if len(items) == 0 {
		r.problem("etcd has nothing under %s", prefix)
	}
	return items
}

func text(value any) string {
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
