package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Any, as an element of a row's list, allows everything.
const Any = "*"

// Rules say what the packages of one module may import.
type Rules struct {
	// Module is the module's path.
	Module string
	// Rows has one row for each package or folder of packages.
	Rows []Row
	// Tests is what the tests of every package may import beyond its own row.
	Tests Row
	// Guarded are the packages of the standard library that a row must name in
	// Std. All others may be imported by everyone.
	Guarded []string
	// Links bound what packages pull in through others.
	Links []Link
}

// Row says what a package may import. Every package may import itself, which
// its external tests do, and the unguarded standard library.
type Row struct {
	// Package is a path below the module: "failure", "." for the root, and
	// "examples/..." for that folder and all below it. Where several rows fit,
	// the longest one holds.
	Package string
	// Imports are packages of this module, in the form of Package.
	Imports []string
	// External are packages of other modules; each stands for itself and all
	// below it.
	External []string
	// Std are guarded packages of the standard library; each stands for itself
	// and all below it.
	Std []string
	// TestExternal is what tests may import beyond External.
	TestExternal []string
}

// Link bounds what the packages of one row pull in, directly and through
// others, when a program links them. Tests are not counted.
type Link struct {
	// Package has the form of [Row].Package.
	Package string
	// Never are import paths, each with all below it.
	Never []string
	// Only, if not empty, are the only packages of other modules, each with all
	// below it.
	Only []string
}

// Package is a package as `go list -json` describes it.
type Package struct {
	ImportPath   string
	Doc          string
	Imports      []string
	TestImports  []string // of the tests in the package
	XTestImports []string // of the tests in its _test package
}

// Check returns one sentence for each breach of the rules, sorted. pkgs holds
// the module's packages and, for the links to be followed, all that they
// depend on.
func (r Rules) Check(pkgs []Package) []string {
	graph := make(map[string][]string, len(pkgs))
	for _, p := range pkgs {
		graph[p.ImportPath] = p.Imports
	}
	var problems []string
	for _, p := range pkgs {
		path, ours := r.relative(p.ImportPath)
		if !ours {
			continue
		}
		problems = append(problems, r.checkImports(path, p)...)
		problems = append(problems, r.checkLinks(path, p, graph)...)
		if p.Doc == "" {
			problems = append(problems, fmt.Sprintf("package %s has no doc comment: add a doc.go that says what it is for", path))
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

func (r Rules) checkImports(path string, p Package) []string {
	row, ok := r.row(path)
	if !ok {
		return []string{fmt.Sprintf("package %s has no row in internal/archtest/table.go: add one that names what it may import, and the package's line in docs/ARCHITECTURE.md", path)}
	}
	var problems []string
	for _, imp := range p.Imports {
		if !r.allows(row, path, imp) {
			problems = append(problems, fmt.Sprintf("package %s imports %s, which its row in internal/archtest/table.go does not name: do without it, or change the row and say why in docs/decisions.md", path, imp))
		}
	}
	inTests := Row{
		Imports:  slices.Concat(row.Imports, r.Tests.Imports),
		External: slices.Concat(row.External, row.TestExternal, r.Tests.External),
		Std:      slices.Concat(row.Std, r.Tests.Std),
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		if !r.allows(inTests, path, imp) {
			problems = append(problems, fmt.Sprintf("tests of package %s import %s, which internal/archtest/table.go does not allow there: do without it, or change the table and say why in docs/decisions.md", path, imp))
		}
	}
	return problems
}

// checkLinks walks all that p pulls in, nearest first, so that the chain it
// reports is a shortest one. It does not look behind a breach: whatever lies
// there is there because of it.
func (r Rules) checkLinks(path string, p Package, graph map[string][]string) []string {
	var problems []string
	for _, link := range r.Links {
		if !covers(link.Package, path) {
			continue
		}
		importer := map[string]string{p.ImportPath: ""}
		for queue := []string{p.ImportPath}; len(queue) > 0; queue = queue[1:] {
			at := queue[0]
			_, ours := r.relative(at)
			never := anyBelow(link.Never, at)
			other := len(link.Only) > 0 && !ours && !isStd(at) && !anyBelow(link.Only, at)
			if never || other {
				chain := []string{at}
				for via := importer[at]; via != ""; via = importer[via] {
					chain = append(chain, via)
				}
				slices.Reverse(chain)
				problems = append(problems, fmt.Sprintf("package %s must not link %s, but does: %s", path, at, strings.Join(chain, " -> ")))
				continue
			}
			for _, imp := range graph[at] {
				if _, seen := importer[imp]; !seen {
					importer[imp] = at
					queue = append(queue, imp)
				}
			}
		}
	}
	return problems
}

func (r Rules) allows(row Row, path, imp string) bool {
	if to, ours := r.relative(imp); ours {
		return to == path || slices.ContainsFunc(row.Imports, func(pattern string) bool { return covers(pattern, to) })
	}
	if isStd(imp) {
		return !anyBelow(r.Guarded, imp) || anyBelow(row.Std, imp)
	}
	return anyBelow(row.External, imp)
}

// row returns the row of a package: the one with the longest pattern that fits.
func (r Rules) row(path string) (best Row, found bool) {
	for _, row := range r.Rows {
		if covers(row.Package, path) && (!found || len(row.Package) > len(best.Package)) {
			best, found = row, true
		}
	}
	return best, found
}

// relative returns the path of a package below the module, and whether it
// belongs to it.
func (r Rules) relative(importPath string) (path string, ours bool) {
	if importPath == r.Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, r.Module+"/")
}

func covers(pattern, path string) bool {
	if folder, ok := strings.CutSuffix(pattern, "/..."); ok {
		return below(folder, path)
	}
	return pattern == Any || pattern == path
}

func anyBelow(folders []string, path string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return f == Any || below(f, path) })
}

func below(folder, path string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// isStd reports whether an import path belongs to the standard library: only
// the others begin with a domain name.
func isStd(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
