// Command hooks is two admission webhooks in one server: /inject puts a second container into pods
// that ask for it, /images refuses pods whose images do not come from the registry that is allowed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"

	admission "k8s.io/api/admission/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	listen := flag.String("listen", ":8443", "where to serve")
	certificates := flag.String("certificates", "/certificates", "a folder with tls.crt and tls.key")
	sidecar := flag.String("sidecar", "", "the image that is put into pods")
	registry := flag.String("registry", "", "how the names of allowed images begin")
	flag.Parse()
	handle("/inject", func(request *admission.AdmissionRequest, pod *core.Pod) *admission.AdmissionResponse {
		return inject(pod, *sidecar)
	})
	handle("/images", func(request *admission.AdmissionRequest, pod *core.Pod) *admission.AdmissionResponse {
		return images(pod, *registry)
	})
	http.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	log.Fatal(http.ListenAndServeTLS(*listen, *certificates+"/tls.crt", *certificates+"/tls.key", nil))
}

// handle decodes a review with a pod, and answers it under its own UID.
func handle(path string, decide func(*admission.AdmissionRequest, *core.Pod) *admission.AdmissionResponse) {
	http.HandleFunc(path, func(writer http.ResponseWriter, request *http.Request) {
		var review admission.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(writer, "an AdmissionReview with a request is expected", http.StatusBadRequest)
			return
		}
		var pod core.Pod
		if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		answer := decide(review.Request, &pod)
		answer.UID = review.Request.UID
		log.Printf("%s %s/%s allowed=%v", path, review.Request.Namespace, pod.Name, answer.Allowed)
		review.Response, review.Request = answer, nil
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(review); err != nil {
			log.Print(err)
		}
	})
}

// inject adds a container and an annotation with a JSON patch.
func inject(pod *core.Pod, image string) *admission.AdmissionResponse {
	for _, container := range pod.Spec.Containers {
		if container.Name == "sidecar" {
			return &admission.AdmissionResponse{Allowed: true}
		}
	}
	sidecar := core.Container{Name: "sidecar", Image: image, Args: []string{"--listen=:9191"}}
	operations := []map[string]any{{"op": "add", "path": "/spec/containers/-", "value": sidecar}}
	if pod.Annotations == nil {
		operations = append(operations, map[string]any{"op": "add", "path": "/metadata/annotations", "value": map[string]string{}})
	}
	operations = append(operations, map[string]any{"op": "add", "path": "/metadata/annotations/hooks.coracle.dev~1injected", "value": "yes"})
	patch, err := json.Marshal(operations)
	if err != nil {
		return refuse(err.Error())
	}
	kind := admission.PatchTypeJSONPatch
	return &admission.AdmissionResponse{
		Allowed: true, Patch: patch, PatchType: &kind,
		AuditAnnotations: map[string]string{"injected": image},
	}
}

// images looks at every container, also the one that was put in.
func images(pod *core.Pod, registry string) *admission.AdmissionResponse {
	var warnings []string
	containers := append(append([]core.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for _, container := range containers {
		if !strings.HasPrefix(container.Image, registry) {
			return refuse(fmt.Sprintf("image %s is not from %s", container.Image, registry))
		}
		if strings.HasSuffix(container.Image, ":latest") {
			warnings = append(warnings, fmt.Sprintf("image %s can change", container.Image))
		}
	}
	return &admission.AdmissionResponse{Allowed: true, Warnings: warnings}
}

func refuse(message string) *admission.AdmissionResponse {
	return &admission.AdmissionResponse{Result: &meta.Status{Code: http.StatusForbidden, Message: message}}
}
