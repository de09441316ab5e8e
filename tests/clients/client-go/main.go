// The scenario of ../README.md with client-go, in its default content type.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	toolswatch "k8s.io/client-go/tools/watch"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := scenario(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var namespace = os.Getenv("NAMESPACE")

func scenario(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	// Client-go asks for protobuf only when told to; the built-in components all do.
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	streams := &streaming{config: config}
	for _, step := range []struct {
		done string
		run  func(context.Context, kubernetes.Interface) error
	}{
		{"created, and Ready", create}, {"patched in three ways", patch},
		{"applied, refused a conflict, applied by force", applied},
		{"watched through a restart", restart}, {"read the log", logs},
		{"executed commands in the pod over WebSocket", streams.execOverWebSocket},
		{"executed commands in the pod over SPDY", streams.execOverSPDY},
		{"forwarded a port over WebSocket", streams.forwardOverWebSocket},
		{"forwarded a port over SPDY", streams.forwardOverSPDY},
		{"deleted", remove},
	} {
		if err := step.run(ctx, client); err != nil {
			return fmt.Errorf("not %s: %w", step.done, err)
		}
		fmt.Println(step.done)
	}
	return nil
}

func create(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	settings := &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, settings, meta.CreateOptions{}); err != nil {
		return err
	}
	grace := int64(1)
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Name: "hello"}, Spec: core.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []core.Container{{Name: "main", Image: os.Getenv("IMAGE"),
			Command: []string{"sh", "-c", "httpd -p 8080 -h /www; echo hello from " + namespace + "; exec sleep 1000"}}},
	}}
	// The ServiceAccount is made by a controller a moment after the namespace.
	for {
		_, err = client.CoreV1().Pods(namespace).Create(ctx, pod, meta.CreateOptions{})
		if !errors.IsForbidden(err) || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	return untilPod(ctx, client, func(event watch.Event) (bool, error) {
		if pod, ok := event.Object.(*core.Pod); ok {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == core.PodReady && condition.Status == core.ConditionTrue {
					return true, nil
				}
			}
		}
		return false, nil
	})
}

func untilPod(ctx context.Context, client kubernetes.Interface, condition toolswatch.ConditionFunc) error {
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", namespace, fields.OneTermEqualSelector("metadata.name", "hello"))
	_, err := toolswatch.UntilWithSync(ctx, pods, &core.Pod{}, nil, condition)
	return err
}

func patch(ctx context.Context, client kubernetes.Interface) error {
	for _, step := range []struct {
		kind        types.PatchType
		body, color string
	}{
		{types.MergePatchType, `{"data":{"color":"green"}}`, "green"},
		{types.StrategicMergePatchType, `{"data":{"color":"blue"}}`, "blue"},
		{types.JSONPatchType, `[{"op":"replace","path":"/data/color","value":"white"}]`, "white"},
	} {
		changed, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, "settings", step.kind, []byte(step.body), meta.PatchOptions{})
		if err != nil {
			return err
		}
		if changed.Data["color"] != step.color {
			return fmt.Errorf("%s gave %v", step.kind, changed.Data)
		}
	}
	return nil
}

func applied(ctx context.Context, client kubernetes.Interface) error {
	put := func(manager, color string, force bool) (*core.ConfigMap, error) {
		settings := apply.ConfigMap("settings", namespace).WithData(map[string]string{"color": color})
		return client.CoreV1().ConfigMaps(namespace).Apply(ctx, settings, meta.ApplyOptions{FieldManager: manager, Force: force})
	}
	settings, err := put("first", "black", true)
	if err != nil {
		return err
	}
	if settings.Data["color"] != "black" {
		return fmt.Errorf("the first manager's apply gave %v", settings.Data)
	}
	switch settings, err = put("second", "grey", false); {
	case err == nil:
		return fmt.Errorf("a conflicting apply was accepted and gave %v", settings.Data)
	case !errors.IsConflict(err) || !errors.HasStatusCause(err, meta.CauseTypeFieldManagerConflict) || err.Error() != conflictMessage:
		return fmt.Errorf("a conflicting apply was answered with %#v", err)
	}
	if settings, err = put("second", "grey", true); err == nil && settings.Data["color"] != "grey" {
		err = fmt.Errorf("the forced apply gave %v", settings.Data)
	}
	return err
}

const conflictMessage = `Apply failed with 1 conflict: conflict with "first": .data.color`

func paint(ctx context.Context, client kubernetes.Interface, color string) error {
	_, err := client.CoreV1().ConfigMaps(namespace).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"color":"`+color+`"}}`), meta.PatchOptions{})
	return err
}

func restart(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	seen := make(chan string, 100)
	report := func(object any) {
		if settings, ok := object.(*core.ConfigMap); ok && settings.Name == "settings" {
			seen <- settings.Data["color"]
		}
	}
	informer := factory.Core().V1().ConfigMaps().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: report, UpdateFunc: func(_, object any) { report(object) }}); err != nil {
		return err
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(stop.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the informer did not sync")
	}
	if output, err := exec.Command("bash", "-c", os.Getenv("RESTART")).CombinedOutput(); err != nil {
		return fmt.Errorf("restarting: %w: %s", err, output)
	}
	if err := paint(ctx, client, "gold"); err != nil {
		return err
	}
	for {
		select {
		case color := <-seen:
			if color == "gold" {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func logs(ctx context.Context, client kubernetes.Interface) error {
	text, err := client.CoreV1().Pods(namespace).GetLogs("hello", &core.PodLogOptions{}).DoRaw(ctx)
	if err == nil && !strings.Contains(string(text), "hello from "+namespace) {
		err = fmt.Errorf("the log says %q", text)
	}
	return err
}

func remove(ctx context.Context, client kubernetes.Interface) error {
	if err := client.CoreV1().Pods(namespace).Delete(ctx, "hello", meta.DeleteOptions{}); err != nil {
		return err
	}
	err := untilPod(ctx, client, func(event watch.Event) (bool, error) { return event.Type == watch.Deleted, nil })
	if err != nil {
		// It may have been gone before the watch began.
		if _, get := client.CoreV1().Pods(namespace).Get(ctx, "hello", meta.GetOptions{}); !errors.IsNotFound(get) {
			return err
		}
	}
	return client.CoreV1().Namespaces().Delete(ctx, namespace, meta.DeleteOptions{})
}
