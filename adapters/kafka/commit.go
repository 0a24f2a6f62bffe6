package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

type topicPartition struct {
	topic     string
	partition int32
}

// position is what is committed for a partition; without a commit its offset is
// negative.
type position struct {
	offset   int64
	metadata string
}

// positions reads what a group has committed.
func (b *broker) positions(ctx context.Context, group string, of map[string][]int32) (map[topicPartition]position, error) {
	resp, err := bounded(ctx, func() (*sarama.OffsetFetchResponse, error) { return b.admin.ListConsumerGroupOffsets(group, of) })
	if errors.Is(err, sarama.ErrGroupIDNotFound) {
		resp, err = &sarama.OffsetFetchResponse{}, nil // it has none yet
	}
	if err != nil {
		return nil, fmt.Errorf("positions of group %q: %w", group, err)
	}
	all := map[topicPartition]position{}
	for topic, partitions := range of {
		for _, n := range partitions {
			block := resp.GetGroupBlock(group, topic, n)
			if block == nil {
				block = resp.GetBlock(topic, n)
			}
			switch {
			case block == nil:
				all[topicPartition{topic, n}] = position{offset: -1}
			case block.Err != sarama.ErrNoError:
				return nil, fmt.Errorf("position of group %q in partition %d of topic %q: %w", group, n, topic, block.Err)
			default:
				all[topicPartition{topic, n}] = position{block.Offset, block.Metadata}
			}
		}
	}
	return all, nil
}

// commit writes positions as a member of a group, or, with no member, as nobody
// while the group has none. Sarama's own commits do not say whether they
// succeeded.
func (b *broker) commit(ctx context.Context, group, member string, generation int32, what map[topicPartition]position) error {
	if len(what) == 0 {
		return nil
	}
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, b.commitOnce(group, member, generation, what) })
	return err
}

func (b *broker) commitOnce(group, member string, generation int32, what map[topicPartition]position) error {
	coordinator, err := b.client.Coordinator(group)
	if err != nil {
		return err
	}
	req := sarama.NewOffsetCommitRequest(b.sarama, group)
	req.ConsumerID, req.ConsumerGroupGeneration = member, generation
	if id := b.sarama.Consumer.Group.InstanceId; id != "" && member != "" {
		req.GroupInstanceId = &id
	}
	for tp, p := range what {
		req.AddBlockWithLeaderEpoch(tp.topic, tp.partition, p.offset, -1, 0, p.metadata)
	}
	resp, err := coordinator.CommitOffset(req)
	if err != nil {
		_ = coordinator.Close()
		_ = b.client.RefreshCoordinator(group)
		return fmt.Errorf("commit of group %q: %w", group, err)
	}
	for topic, partitions := range resp.Errors {
		for n, kerr := range partitions {
			if kerr == sarama.ErrNoError {
				continue
			}
			if errors.Is(kerr, sarama.ErrNotCoordinatorForConsumer) || errors.Is(kerr, sarama.ErrConsumerCoordinatorNotAvailable) {
				_ = b.client.RefreshCoordinator(group)
			}
			return fmt.Errorf("commit of group %q for partition %d of topic %q: %w", group, n, topic, kerr)
		}
	}
	return nil
}
