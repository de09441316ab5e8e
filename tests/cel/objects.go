// Objects with declared fields, and an authorizer whose decisions follow from what is asked.
package main

import (
	"context"
	"errors"
	"strings"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// objects knows the types of the fields. Values are maps.
type objects struct {
	types.Provider
	known map[string]map[string]string
}

func (provider *objects) FindStructType(name string) (*types.Type, bool) {
	if _, ok := provider.known[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return provider.Provider.FindStructType(name)
}

func (provider *objects) FindStructFieldNames(name string) ([]string, bool) {
	if fields, ok := provider.known[name]; ok {
		return sortedKeys(fields), true
	}
	return provider.Provider.FindStructFieldNames(name)
}

func (provider *objects) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	fields, ok := provider.known[name]
	if !ok {
		return provider.Provider.FindStructFieldType(name, field)
	}
	kind, err := parseType(fields[field], provider.known)
	if err != nil {
		return nil, false
	}
	return &types.FieldType{Type: kind}, true
}

// decide allows what has an even number of bytes, and fails for the verb "fail". The reason tells what
// was asked.
func decide(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	parts := []string{asked.GetUser().GetName(), asked.GetVerb()}
	if asked.IsResourceRequest() {
		parts = append(parts, asked.GetAPIGroup(), asked.GetResource(), asked.GetSubresource(), asked.GetNamespace(), asked.GetName())
	} else {
		parts = append(parts, asked.GetPath())
	}
	reason := strings.Join(parts, "|")
	switch {
	case asked.GetVerb() == "fail":
		return authorizer.DecisionNoOpinion, reason, errors.New("failed: " + reason)
	case len(reason)%2 == 0:
		return authorizer.DecisionAllow, reason, nil
	}
	return authorizer.DecisionDeny, reason, nil
}
