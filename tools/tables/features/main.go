// Command features prints the table of feature gates that the crate `api` embeds: name, stage,
// default, and whether it can be changed.
//
//	go run ./features > ../../crates/api/src/features/features.tbl
//
// The format is described in crates/api/src/features/mod.rs, its only reader.
package main

import (
	"cmp"
	"fmt"
	"slices"

	_ "k8s.io/apiextensions-apiserver/pkg/features"
	_ "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/kube-aggregator/pkg/apiserver"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	var names []featuregate.Feature
	for name := range all {
		// These two stand for all gates of a stage.
		if name != "AllAlpha" && name != "AllBeta" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(left, right featuregate.Feature) int { return cmp.Compare(left, right) })
	for _, name := range names {
		gate := all[name]
		stage := string(gate.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		state := "off"
		if gate.Default {
			state = "on"
		}
		if gate.LockToDefault {
			state += " locked"
		}
		fmt.Printf("%s\t%s\t%s\n", name, stage, state)
	}
}
