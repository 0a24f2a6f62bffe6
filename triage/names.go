package triage

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// maxNames is how many different names a [Names] tells apart; longer names are
// cut at maxNameBytes.
const (
	maxNames     = 16
	maxNameBytes = 256
)

// Other stands in a [Names] for all names beyond the first 16.
const Other = "(other)"

// Names counts names, in bounded memory: the first 16 that are seen, and all
// others together. The zero Names is empty. Its JSON form is a list of
// {name, count}, most frequent first, (other) last.
type Names struct {
	list  []NameCount
	other int64
}

// NameCount is how often a name was seen.
type NameCount struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Add records n occurrences of a name. The empty name does not count.
func (c *Names) Add(name string, n int64) {
	if name == "" || n == 0 {
		return
	}
	name = cutName(name)
	for i := range c.list {
		if c.list[i].Name == name {
			c.list[i].Count += n
			return
		}
	}
	switch {
	case name == Other || len(c.list) == maxNames:
		c.other += n
	default:
		c.list = append(c.list, NameCount{strings.Clone(name), n})
	}
}

// Merge adds all of other, which does not change.
func (c *Names) Merge(other Names) {
	for _, nc := range other.list {
		c.Add(nc.Name, nc.Count)
	}
	c.other += other.other
}

// List returns the names, most frequent first, then by name, and [Other] last.
func (c Names) List() []NameCount {
	list := slices.Clone(c.list)
	slices.SortFunc(list, func(a, b NameCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	if c.other > 0 {
		list = append(list, NameCount{Other, c.other})
	}
	return list
}

// MarshalJSON implements [json.Marshaler].
func (c Names) MarshalJSON() ([]byte, error) {
	list := c.List()
	if list == nil {
		list = []NameCount{}
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Names) UnmarshalJSON(data []byte) error {
	var list []NameCount
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = Names{}
	for _, nc := range list {
		c.Add(nc.Name, nc.Count)
	}
	return nil
}
