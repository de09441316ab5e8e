package main

import (
	"fmt"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
)

const group = "ecosystem.coracle.dev"

// The older version counts rows and names its crop directly; the newer one counts beds, of which
// two make a row, and has room for more than the crop's name.
var (
	older = schema.GroupVersion{Group: group, Version: "v1alpha1"}
	newer = schema.GroupVersion{Group: group, Version: "v1"}
)

type GardenStatus struct {
	Beds       int              `json:"beds,omitempty"`
	Conditions []meta.Condition `json:"conditions,omitempty"`
}

func (status GardenStatus) copy() GardenStatus {
	conditions := status.Conditions
	status.Conditions = nil
	for _, condition := range conditions {
		status.Conditions = append(status.Conditions, *condition.DeepCopy())
	}
	return status
}

// OlderGarden is v1alpha1.
type OlderGarden struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            OlderSpec    `json:"spec,omitempty"`
	Status          GardenStatus `json:"status,omitempty"`
}

type OlderSpec struct {
	Rows int    `json:"rows,omitempty"`
	Crop string `json:"crop,omitempty"`
}

type OlderGardenList struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []OlderGarden `json:"items"`
}

// Garden is v1, by which both are converted.
type Garden struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`
	Spec            GardenSpec   `json:"spec,omitempty"`
	Status          GardenStatus `json:"status,omitempty"`
}

type GardenSpec struct {
	Beds int  `json:"beds,omitempty"`
	Crop Crop `json:"crop,omitempty"`
}

type Crop struct {
	Name    string `json:"name,omitempty"`
	Variety string `json:"variety,omitempty"`
}

type GardenList struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []Garden `json:"items"`
}

func (*Garden) Hub() {}

// The annotation in which a variety is kept for those who read the older version.
const varietyKept = group + "/variety"

func (garden *OlderGarden) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*Garden)
	if !ok {
		return fmt.Errorf("%T is no hub of gardens", hub)
	}
	garden.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	to.Spec = GardenSpec{Beds: 2 * garden.Spec.Rows, Crop: Crop{Name: garden.Spec.Crop, Variety: garden.Annotations[varietyKept]}}
	delete(to.Annotations, varietyKept)
	to.Status = garden.Status.copy()
	return nil
}

func (garden *OlderGarden) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*Garden)
	if !ok {
		return fmt.Errorf("%T is no hub of gardens", hub)
	}
	from.ObjectMeta.DeepCopyInto(&garden.ObjectMeta)
	garden.Spec = OlderSpec{Rows: from.Spec.Beds / 2, Crop: from.Spec.Crop.Name}
	if from.Spec.Crop.Variety != "" {
		if garden.Annotations == nil {
			garden.Annotations = map[string]string{}
		}
		garden.Annotations[varietyKept] = from.Spec.Crop.Variety
	}
	garden.Status = from.Status.copy()
	return nil
}

func (garden *OlderGarden) DeepCopyObject() runtime.Object {
	copied := *garden
	garden.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status = garden.Status.copy()
	return &copied
}

func (garden *Garden) DeepCopyObject() runtime.Object {
	copied := *garden
	garden.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status = garden.Status.copy()
	return &copied
}

func (list *OlderGardenList) DeepCopyObject() runtime.Object {
	copied := *list
	copied.Items = nil
	for i := range list.Items {
		copied.Items = append(copied.Items, *list.Items[i].DeepCopyObject().(*OlderGarden))
	}
	return &copied
}

func (list *GardenList) DeepCopyObject() runtime.Object {
	copied := *list
	copied.Items = nil
	for i := range list.Items {
		copied.Items = append(copied.Items, *list.Items[i].DeepCopyObject().(*Garden))
	}
	return &copied
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(older.WithKind("Garden"), &OlderGarden{})
	scheme.AddKnownTypeWithName(older.WithKind("GardenList"), &OlderGardenList{})
	scheme.AddKnownTypeWithName(newer.WithKind("Garden"), &Garden{})
	scheme.AddKnownTypeWithName(newer.WithKind("GardenList"), &GardenList{})
	meta.AddToGroupVersion(scheme, older)
	meta.AddToGroupVersion(scheme, newer)
}
