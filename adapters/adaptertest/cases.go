package adaptertest

// cases are the subtests, by invariant. Those that a broker's capabilities do
// not call for say so themselves and prove instead that nothing is invented.
var cases = []struct {
	name string
	run  func(*world)
}{
	// 1. Nothing is lost.
	{"HandoffIsRepeatedUntilConfirmedAndOnlyThenAcked", handoffIsRepeated},
	{"HandoffBackoffGrowsFrom100msTo30s", handoffBackoffGrows},
	{"HandoffWithUnknownResultLosesNothing", handoffWithUnknownResult},
	{"RefusedMessageGoesToTheLastResort", refusedGoesToLastResort},
	{"RefusedMessageWithoutLastResortStaysWithTheBroker", refusedStays},
	{"TooLargeHandoffIsTriedOnceMoreWithLess", tooLargeIsTrimmed},
	{"LostAckIsADuplicateAtWorst", lostAck},

	// 2. Conservation, by id.
	{"NothingIsLostWhenProcessesAreKilledAtEveryStage", conservationThroughKills},
	{"NothingIsLostOrDoubledByRollingRestarts", conservationThroughRestarts},
	{"DeathBetweenHandoffAndAckLeavesACopy", deathBetweenHandoffAndAck},
	{"BrokerRestartLosesNothing", brokerRestart},

	// 3. Original bytes.
	{"BytesArriveUnchangedWhateverTheHandlerDoes", originalBytes},
	{"KeyAndHeadersArriveUnchanged", keyAndHeaders},

	// 4. First position wins.
	{"FirstPositionWins", firstPositionWins},

	// 5. Never early, no convoy.
	{"RetriesAreNeverEarlyNorLateAndSpread", retriesAreOnTime},
	{"RetriesAreOnTimeDespiteABacklog", retriesDespiteBacklog},
	{"QuantizeNeverShortensNorLengthensByMoreThanTheStep", quantize},
	{"EarlyDeliveryIsHandedOffForTheRest", earlyDelivery},
	{"LongDelayIsKept", longDelay},
	{"ParkedMessageComesBackAfterTheInterval", parkedComesBack},

	// 6. No blocking.
	{"FailingMessagesDelayNobody", failingDelaysNobody},
	{"SlowHandoffBlocksItsSlotOnly", slowHandoff},

	// 7. Shutdown is not failure, and finished work counts.
	{"ShutdownDuringTheHandlerCountsNothing", shutdownDuringHandler},
	{"WorkThatFinishesDuringCloseIsAcked", finishedWorkIsAcked},
	{"HandlerThatOutlivesTheGraceGivesItsMessageBack", handlerOutlivesGrace},
	{"CloseDoesNotWaitForABackoff", closeDuringBackoff},
	{"CloseDuringAHandoffLeavesOneCopy", closeDuringHandoff},
	{"CloseDuringAFailingHandoffReturnsTheMessage", closeDuringFailingHandoff},
	{"SubscriptionStopsAndClosesInOrder", stopAndClose},

	// 8. Counters travel with the message; messages that kill are found.
	{"CountersSurviveRestarts", countersSurvive},
	{"MessageThatKillsItsProcessIsFoundAlone", crashingMessage},
	{"TenRollingRestartsMakeNoSuspect", rollingRestarts},
	{"ThreeHundredAttemptsAreExactlyThreeHundred", manyAttempts},

	// 9. Only the failing consumer sees it again.
	{"OnlyTheFailingGroupSeesItAgain", onlyTheFailingGroup},

	// 10. Forged or leaked state is harmless.
	{"ForgedStateOnTheTopicIsIgnored", forgedOnMain},
	{"ForgedStateOnTheRetryStreamIsClamped", forgedOnRetry},
	{"LeakedStateIsStrippedFromOutputs", leakedState},

	// 11. One value per key, bounded.
	{"MetadataDoesNotGrowWithHops", metadataDoesNotGrow},
	{"HugeErrorTextIsCut", hugeErrorText},
	{"MetadataLimitIsShared", metadataLimit},
	{"SizeLimitsAreToldApart", sizeLimits},

	// 12. No output before success.
	{"OutputsOfFailedAttemptsAreNotPublished", outputsOfFailedAttempts},
	{"OutputThatCannotBePublishedIsAFailure", failingOutputs},

	// 13. Undecodable input reaches the chain.
	{"UndecodableIsDeadLetteredWithItsBytes", undecodable},

	// 14. The handler's own view is the same on every attempt.
	{"HandlerSeesTheSameOnEveryAttempt", sameView},
	{"TraceIsKept", traceIsKept},

	// 15. Success means processed. Every subtest counts starts and outcomes.
	{"EachDeliveryHasOneOutcome", oneOutcome},
	{"DeadLetterConsumerNeverFeedsItself", deadLetterConsumer},

	// Streams and names.
	{"EnsureKeepsWhatIsPublishedBeforeTheFirstSubscribe", ensureKeeps},
	{"RetryStreamIsReadFromItsBeginning", retryFromTheBeginning},
	{"PolicyChangeStrandsNothing", policyChange},
	{"NumberOfStreamsIsConstant", streamCount},
	{"UndeclaredCapabilitiesAreRefused", undeclared},
	{"RetryInPlaceWaitsAtItsPlace", retryInPlace},
	{"CollidingNamesAreRefused", collidingNames},

	// Consuming.
	{"ConsumersOfAGroupCompete", competingConsumers},
	{"ConcurrencyIsABoundAndOneKeepsTheOrder", concurrency},

	// The operator's side, and the edges.
	{"DrainRemovesWhatWasTaken", drainSemantics},
	{"DrainBatchRemovesWhatWasTaken", drainBatchSemantics},
	{"CountAndPeekTakeNothing", countAndPeek},
	{"PublisherCloseDoesNothing", publisherClose},
	{"PasswordIsInNoError", passwordInNoError},
}
