package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// goFile is a source file of the checkout.
type goFile struct {
	name   string // its path from the top directory
	syntax *ast.File
}

// goFiles parses the source files of the checkout, including tests.
func goFiles(t *testing.T) (files []goFile) {
	t.Helper()
	for _, name := range filesOfTree(t) {
		if path.Ext(name) != ".go" {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), fromHere(name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, goFile{name, syntax})
	}
	return files
}

// filesOfTree returns the files of the checkout, without those of git, of a student, and those that make build writes.
func filesOfTree(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir("..", func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(file), "../")
		switch {
		case name == ".git" && !entry.IsDir(): // in a work tree of git
		case name == ".git" || name == "bin" || name == ofStudent:
			return filepath.SkipDir
		case !entry.IsDir():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// declarations are the names that the checkout's Go code declares. Types of the same name in different packages are
// one.
type declarations struct {
	packages map[string]bool            // the names of packages
	types    map[string]bool            // the names of types
	names    map[string]bool            // all names, without their types and packages
	members  map[string]string          // for Type.Method, Type.field and package.Name, its type or ""
	embedded map[string][]string        // for the name of a type, those of the types that it embeds
	inPlace  map[string]map[string]bool // for the path of a file or directory, the names declared there, and members
}

// declarationsOfTree returns what the Go code of the checkout declares.
func declarationsOfTree(t *testing.T) *declarations {
	t.Helper()
	d := &declarations{
		packages: map[string]bool{},
		types:    map[string]bool{},
		names:    map[string]bool{},
		members:  map[string]string{},
		embedded: map[string][]string{},
		inPlace:  map[string]map[string]bool{},
	}
	for _, file := range goFiles(t) {
		d.addFile(file)
	}
	return d
}

func (d *declarations) addFile(file goFile) {
	d.packages[file.syntax.Name.Name] = true
	for _, declaration := range file.syntax.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			d.addFunction(file, declaration)
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				d.addSpec(file, spec)
			}
		}
	}
}

// add notes a name that a file declares at its top level, or a member of a type there. typeName is the type of a field,
// or the name itself if it is one of a type.
func (d *declarations) add(file goFile, name, typeName string) {
	for _, place := range []string{file.name, path.Dir(file.name)} {
		if d.inPlace[place] == nil {
			d.inPlace[place] = map[string]bool{}
		}
		d.inPlace[place][name] = true
	}
	_, member, isMember := strings.Cut(name, ".")
	if isMember {
		d.members[name] = typeName
		d.names[member] = true
	} else {
		d.members[file.syntax.Name.Name+"."+name] = typeName
		d.names[name] = true
	}
}

func (d *declarations) addFunction(file goFile, f *ast.FuncDecl) {
	if f.Recv == nil {
		d.add(file, f.Name.Name, "")
		return
	}
	d.add(file, nameOfType(f.Recv.List[0].Type)+"."+f.Name.Name, "")
}

func (d *declarations) addSpec(file goFile, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			d.add(file, name.Name, nameOfType(spec.Type))
		}
	case *ast.TypeSpec:
		d.add(file, spec.Name.Name, spec.Name.Name)
		d.types[spec.Name.Name] = true
		d.addFields(file, spec)
	}
}

// addFields notes the fields of a struct, or the methods of an interface.
func (d *declarations) addFields(file goFile, spec *ast.TypeSpec) {
	var fields *ast.FieldList
	switch syntax := spec.Type.(type) {
	case *ast.StructType:
		fields = syntax.Fields
	case *ast.InterfaceType:
		fields = syntax.Methods
	default:
		return
	}
	typeName := spec.Name.Name
	for _, field := range fields.List {
		for _, name := range field.Names {
			d.add(file, typeName+"."+name.Name, nameOfType(field.Type))
		}
		isEmbedded := len(field.Names) == 0
		if isEmbedded {
			d.embedded[typeName] = append(d.embedded[typeName], nameOfType(field.Type))
		}
	}
}

// nameOfType returns the name of a type without its package, pointer and parameters. It returns "" if the type has
// no name, or if there is none.
func nameOfType(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return nameOfType(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return nameOfType(e.X)
	case *ast.IndexListExpr:
		return nameOfType(e.X)
	}
	return ""
}

// member reports whether a type has a method or field, of its own or from a type that it embeds, or a package has a
// name. It also returns the type of a field.
func (d *declarations) member(owner, name string) (typeName string, isKnown bool) {
	typeName, isKnown = d.members[owner+"."+name]
	if isKnown {
		return typeName, true
	}
	for _, inner := range d.embedded[owner] {
		if inner == name {
			return inner, true
		}
		if inner == owner {
			continue // a type of another package, with the same name
		}
		if typeName, isKnown := d.member(inner, name); isKnown {
			return typeName, true
		}
	}
	return "", false
}
