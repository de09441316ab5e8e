// Command garden is an operator made with controller-runtime. It is deployed twice: as the older
// release, which knows v1alpha1 alone, and as the newer one, which works with v1 and converts
// between both, defaults and validates as a webhook.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	scheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const finalizer = group + "/compost"

func main() {
	release := flag.String("release", "v1alpha1", "the version this release works with")
	namespace := flag.String("election-namespace", "garden", "where the lease of the leader is")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(*release, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(release, namespace string) error {
	kinds := runtime.NewScheme()
	if err := scheme.AddToScheme(kinds); err != nil {
		return err
	}
	addToScheme(kinds)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                        kinds,
		Metrics:                       server.Options{BindAddress: "0"},
		HealthProbeBindAddress:        ":8081",
		LeaderElection:                true,
		LeaderElectionID:              "garden",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	ready := healthz.Checker(healthz.Ping)
	var kind garden = &OlderGarden{}
	if release == newer.Version {
		kind = &Garden{}
		webhooks := ctrl.NewWebhookManagedBy(manager, &Garden{}).WithDefaulter(rules{}).WithValidator(rules{})
		if err := webhooks.Complete(); err != nil {
			return err
		}
		ready = manager.GetWebhookServer().StartedChecker()
	}
	if err := manager.AddReadyzCheck("ready", ready); err != nil {
		return err
	}
	reconciler := &reconciler{Client: manager.GetClient(), kind: kind, release: release}
	if err := ctrl.NewControllerManagedBy(manager).For(kind).Owns(&core.ConfigMap{}).Complete(reconciler); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// garden is what the loop needs of either version.
type garden interface {
	client.Object
	plan() (beds int, crop string)
	status() *GardenStatus
}

func (garden *OlderGarden) plan() (int, string)   { return 2 * garden.Spec.Rows, garden.Spec.Crop }
func (garden *OlderGarden) status() *GardenStatus { return &garden.Status }
func (garden *Garden) plan() (int, string)        { return garden.Spec.Beds, garden.Spec.Crop.Name }
func (garden *Garden) status() *GardenStatus      { return &garden.Status }

type reconciler struct {
	client.Client
	kind    garden
	release string
}

// Reconcile keeps a ConfigMap with the plan of each garden. A garden that goes leaves a ConfigMap
// that tells of it, which is what its finalizer waits for.
func (reconciler *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	garden := reconciler.kind.DeepCopyObject().(garden)
	if err := reconciler.Get(ctx, request.NamespacedName, garden); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !garden.GetDeletionTimestamp().IsZero() {
		return ctrl.Result{}, reconciler.compost(ctx, garden)
	}
	if controllerutil.AddFinalizer(garden, finalizer) {
		return ctrl.Result{}, reconciler.Update(ctx, garden)
	}
	beds, crop := garden.plan()
	plan := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: garden.GetNamespace(), Name: garden.GetName() + "-plan"}}
	_, err := controllerutil.CreateOrUpdate(ctx, reconciler.Client, plan, func() error {
		plan.Data = map[string]string{"beds": strconv.Itoa(beds), "crop": crop, "release": reconciler.release}
		return controllerutil.SetControllerReference(garden, plan, reconciler.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	status := garden.status()
	changed := status.Beds != beds
	status.Beds = beds
	changed = meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: "Planted", Status: metav1.ConditionTrue, Reason: "PlanWritten",
		Message: "planted by " + reconciler.release, ObservedGeneration: garden.GetGeneration(),
	}) || changed
	if !changed {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, reconciler.Status().Update(ctx, garden)
}

func (reconciler *reconciler) compost(ctx context.Context, garden garden) error {
	if !controllerutil.ContainsFinalizer(garden, finalizer) {
		return nil
	}
	_, crop := garden.plan()
	heap := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: garden.GetNamespace(), Name: garden.GetName() + "-compost"}}
	_, err := controllerutil.CreateOrUpdate(ctx, reconciler.Client, heap, func() error {
		heap.Data = map[string]string{"crop": crop, "release": reconciler.release}
		return nil
	})
	if err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(garden, finalizer)
	return reconciler.Update(ctx, garden)
}

// rules are the admission of the newer release: a garden without beds gets two, and nobody plants
// knotweed.
type rules struct{}

func (rules) Default(_ context.Context, garden *Garden) error {
	if garden.Spec.Beds == 0 {
		garden.Spec.Beds = 2
	}
	return nil
}

func (rules) ValidateCreate(_ context.Context, garden *Garden) (admission.Warnings, error) {
	if garden.Spec.Crop.Name == "knotweed" {
		return nil, fmt.Errorf("knotweed is not planted here")
	}
	if garden.Spec.Beds > 100 {
		return admission.Warnings{"that is a lot of digging"}, nil
	}
	return nil, nil
}

func (rules rules) ValidateUpdate(ctx context.Context, _, garden *Garden) (admission.Warnings, error) {
	return rules.ValidateCreate(ctx, garden)
}

func (rules) ValidateDelete(context.Context, *Garden) (admission.Warnings, error) { return nil, nil }
