package kafka

import "github.com/IBM/sarama"

// BeginSCRAM begins an exchange with a nonce that is known.
func BeginSCRAM(m Mechanism, user, password, nonce string) (sarama.SCRAMClient, error) {
	s := &scram{hash: scramHashes[m]}
	err := s.Begin(user, password, "")
	s.nonce = nonce
	return s, err
}
