package memory

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

const (
	// MaxPartitions is the most partitions that a topic can have.
	MaxPartitions = 1024
	// DefaultHeadRoom is the default of Config.HeadRoom, in bytes.
	DefaultHeadRoom = 64 << 10
	// NoHeadRoom as Config.HeadRoom gives Spillway's own streams the limit of
	// the topics, so that a full-size message can never be dead-lettered.
	NoHeadRoom = -1
)

// Config of a [Broker]. The zero value works.
type Config struct {
	// Partitions of every topic and stream. Zero means 1.
	Partitions int
	// MaxMessageBytes bounds payload and headers of a record on a topic of the
	// application. Zero means no limit.
	MaxMessageBytes int
	// MaxMetadataBytes bounds the names and values of all headers of a record
	// together, on every stream. Zero means no limit.
	MaxMetadataBytes int
	// HeadRoom is what retry, parking, dead letter and suspect streams accept
	// above MaxMessageBytes, in bytes. Zero means [DefaultHeadRoom]; see
	// [NoHeadRoom].
	HeadRoom int
	// Retain keeps the records of the application's topics after all groups
	// have acknowledged them, so that a later group receives them too.
	// Spillway's own streams are emptied as usual.
	Retain bool
}

// Validate reports every field that makes no sense.
func (c Config) Validate() error {
	var errs []error
	bad := func(field string, value int, want string) {
		errs = append(errs, fmt.Errorf("memory: %s is %d, want %s", field, value, want))
	}
	if c.Partitions < 0 || c.Partitions > MaxPartitions {
		bad("Partitions", c.Partitions, fmt.Sprintf("1 to %d", MaxPartitions))
	}
	if c.MaxMessageBytes < 0 {
		bad("MaxMessageBytes", c.MaxMessageBytes, "a size, or 0 for no limit")
	}
	if c.MaxMetadataBytes < 0 {
		bad("MaxMetadataBytes", c.MaxMetadataBytes, "a size, or 0 for no limit")
	}
	if c.HeadRoom < NoHeadRoom {
		bad("HeadRoom", c.HeadRoom, "a size, 0 for the default, or NoHeadRoom")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.HeadRoom = cmp.Or(c.HeadRoom, DefaultHeadRoom)
	if c.HeadRoom == NoHeadRoom {
		c.HeadRoom = 0
	}
	return c
}

// checkBare refuses everything in u but the scheme and options. Values are not
// shown: they could be a password put in the wrong place.
func checkBare(u *url.URL) error {
	if u.Host != "" || u.User != nil || u.Opaque != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return errors.New("memory: the URL names something to connect to; this broker lives in the process: write memory:// with options only")
	}
	return nil
}

// parseOptions reads a Config from the options of a URL.
func parseOptions(u *url.URL) (Config, error) {
	var c Config
	if err := checkBare(u); err != nil {
		return c, err
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return c, errors.New("memory: the URL's options are malformed: write name=value, joined by &")
	}
	size := func(to *int, least int) func(string) error {
		return func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < least {
				return fmt.Errorf("want a number of at least %d", least)
			}
			*to = n
			return nil
		}
	}
	options := map[string]func(string) error{
		"partitions":       size(&c.Partitions, 1),
		"maxMessageBytes":  size(&c.MaxMessageBytes, 1),
		"maxMetadataBytes": size(&c.MaxMetadataBytes, 1),
		"headRoom":         size(&c.HeadRoom, 0),
		"retain": func(s string) (err error) {
			if c.Retain, err = strconv.ParseBool(s); err != nil {
				return errors.New("want true or false")
			}
			return nil
		},
	}
	var errs []error
	for _, name := range sortedKeys(values) {
		set, known := options[name]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("memory: unknown option %q; there are %v", name, sortedKeys(options)))
		case len(values[name]) > 1:
			errs = append(errs, fmt.Errorf("memory: option %s is given %d times", name, len(values[name])))
		default:
			if err := set(values[name][0]); err != nil {
				errs = append(errs, fmt.Errorf("memory: option %s: %w", name, err))
			}
		}
	}
	// In Go zero has to mean the default; in a URL it can mean what it says.
	if _, given := values["headRoom"]; given && c.HeadRoom == 0 {
		c.HeadRoom = NoHeadRoom
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	return c, c.Validate()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
