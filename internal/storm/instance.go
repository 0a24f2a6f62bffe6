package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// instance is a broker of the storm's own, which scripts/brokers runs.
type instance struct {
	name    string   // for scripts/brokers
	clients []string // modules
	script  string
	version string
}

// start starts it without data, and returns the variables that tests get.
func (i *instance) start(ctx context.Context) (variables map[string]string, err error) {
	if i.script, err = findScript(); err != nil {
		return nil, err
	}
	out, err := i.brokers(ctx, "up", "--fresh", i.name)
	if err != nil {
		return nil, err
	}
	variables = map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			variables[key] = value
		}
	}
	status, err := i.brokers(ctx, "status", i.name)
	if _, after, ok := strings.Cut(status, "version "); ok {
		i.version, _, _ = strings.Cut(after, " ")
	}
	return variables, err
}

func (i *instance) Stop(ctx context.Context) error {
	_, err := i.brokers(ctx, "down", "--purge", i.name)
	return err
}

func (i *instance) Version() string   { return i.version }
func (i *instance) Clients() []string { return i.clients }

// ctl runs the broker's own command.
func (i *instance) ctl(ctx context.Context, args ...string) (stdout string, err error) {
	return i.brokers(ctx, append([]string{"ctl", i.name}, args...)...)
}

// killed and restarted are what trials do.
func (i *instance) killed(ctx context.Context, r *rand.Rand) (scope string, err error) {
	if _, err := i.brokers(ctx, "kill", i.name); err != nil {
		return "", err
	}
	pause(ctx, between(r, 0, 2*time.Second))
	_, err = i.brokers(ctx, "up", i.name)
	return "", err
}

func (i *instance) restarted(ctx context.Context, _ *rand.Rand) (scope string, err error) {
	_, err = i.brokers(ctx, "restart", i.name)
	return "", err
}

// findScript looks upwards, because tests run in their package's folder.
func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		script := filepath.Join(dir, "scripts", "brokers")
		if info, err := os.Stat(script); err == nil && info.Mode().IsRegular() {
			return script, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("scripts/brokers is not here, nor above")
		}
		dir = parent
	}
}

// brokers runs scripts/brokers. What it says on the way is in the error.
func (i *instance) brokers(ctx context.Context, args ...string) (stdout string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, i.script, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	// The broker that it starts inherits these; nobody waits for that one.
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("scripts/brokers %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
