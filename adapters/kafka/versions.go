package kafka

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// api is a version of a request that we cannot do without.
type api struct {
	key     int16
	name    string
	version int16
	since   string // the Kafka that has it first
	why     string
}

// needed is what makes Kafka 2.4 the oldest that will do. Topic ids, from 2.8, are
// used where they are; so are DescribeConfigs and DescribeGroups.
var needed = []api{
	{0, "Produce", 3, "0.11", "headers"},
	{1, "Fetch", 4, "0.11", "headers"},
	{2, "ListOffsets", 1, "0.10.1", "the bounds of partitions"},
	{3, "Metadata", 4, "0.11", "not creating a topic by asking for it"},
	{8, "OffsetCommit", 2, "0.9", "positions with metadata"},
	{9, "OffsetFetch", 2, "0.10.2", "positions with metadata"},
	{10, "FindCoordinator", 0, "0.9", "consumer groups"},
	{11, "JoinGroup", 0, "0.9", "consumer groups"},
	{12, "Heartbeat", 0, "0.9", "consumer groups"},
	{13, "LeaveGroup", 0, "0.9", "consumer groups"},
	{14, "SyncGroup", 0, "0.9", "consumer groups"},
	createTopics,
	{22, "InitProducerId", 0, "0.11", "idempotent hand-offs"},
}

var createTopics = api{19, "CreateTopics", 4, "2.4", "topics with the cluster's own replication and partitions"}

// VersionError says what the cluster lacks.
type VersionError struct {
	// API is the request, and Have the highest version of it that the cluster
	// knows, or -1.
	API  string
	Have int
	// Want is the version that is needed, Since the Kafka that has it first, and For
	// what it is needed for.
	Want       int
	Since, For string
}

func (e *VersionError) Error() string {
	have := "is missing"
	if e.Have >= 0 {
		have = fmt.Sprintf("ends at version %d", e.Have)
	}
	return fmt.Sprintf("request %s %s, and version %d is needed, which Kafka has from %s on, for %s", e.API, have, e.Want, e.Since, e.For)
}

// checkVersions refuses a cluster that lacks what is needed. It asks one broker:
// the controller, which creates topics.
func (b *broker) checkVersions() error {
	controller, err := b.client.Controller()
	if err != nil {
		return err
	}
	resp, err := controller.ApiVersions(&sarama.ApiVersionsRequest{})
	if err != nil {
		return fmt.Errorf("versions of the protocol: %w", err)
	}
	var lacks []error
	for _, a := range needed {
		if a == createTopics && b.cfg.VerifyOnly {
			continue
		}
		have := -1
		if i := slices.IndexFunc(resp.ApiKeys, func(k sarama.ApiVersionsResponseKey) bool { return k.ApiKey == a.key }); i >= 0 {
			have = int(resp.ApiKeys[i].MaxVersion)
		}
		if have < int(a.version) {
			lacks = append(lacks, &VersionError{API: a.name, Have: have, Want: int(a.version), Since: a.since, For: a.why})
		}
	}
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("the cluster is not Kafka 2.4 or newer: %w", errors.Join(lacks...))
}
