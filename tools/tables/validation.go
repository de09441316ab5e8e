package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// validationTag matches a +k8s: comment tag that says something about values; tags for the code
// generators of other kinds are left out.
var validationTag = regexp.MustCompile(`^\+k8s:(.*)$`)
var otherTag = regexp.MustCompile(`^(deepcopy-gen|prerelease-lifecycle-gen|conversion-gen|openapi-gen|openapi-model-package|defaulter-gen|protobuf-gen|validation-gen|register-gen|informers|deprecated)`)

// sources holds the validation tags of the packages read so far: "Type" and "Type.Field" to tags.
type sources map[string]map[string][]string

// of returns the tags of a type (field "") or of its field, in the order they are written.
func (s sources) of(goType reflect.Type, field string) []string {
	tags, read := s[goType.PkgPath()]
	if !read {
		tags = readTags(goType.PkgPath())
		s[goType.PkgPath()] = tags
	}
	name := goType.Name()
	if field != "" {
		name += "." + field
	}
	return tags[name]
}

func readTags(pkg string) map[string][]string {
	output, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		fail("go list %s: %v", pkg, err)
	}
	directory := strings.TrimSpace(string(output))
	entries, err := os.ReadDir(directory)
	if err != nil {
		fail("%v", err)
	}
	tags := map[string][]string{}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "zz_") || strings.HasPrefix(name, "generated") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(directory, name), nil, parser.ParseComments)
		if err != nil {
			fail("%s: %v", name, err)
		}
		for _, declaration := range file.Decls {
			general, ok := declaration.(*ast.GenDecl)
			if !ok || general.Tok != token.TYPE {
				continue
			}
			for _, spec := range general.Specs {
				named := spec.(*ast.TypeSpec)
				tags[named.Name.Name] = append(tagsIn(general.Doc), tagsIn(named.Doc)...)
				structure, ok := named.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range structure.Fields.List {
					for _, fieldName := range field.Names {
						tags[named.Name.Name+"."+fieldName.Name] = tagsIn(field.Doc)
					}
				}
			}
		}
	}
	return tags
}

func tagsIn(comments *ast.CommentGroup) []string {
	if comments == nil {
		return nil
	}
	var tags []string
	for _, comment := range comments.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if found := validationTag.FindStringSubmatch(text); found != nil && !otherTag.MatchString(found[1]) {
			tags = append(tags, found[1])
		}
	}
	return tags
}

// validationText writes tags as the table's attribute: a JSON list.
func validationText(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return "\tvalidation=" + marshal(tags)
}
