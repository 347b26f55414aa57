// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// The same participant as dds_participant.c, on Fast DDS.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/publisher/qos/DataWriterQos.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/subscriber/qos/DataReaderQos.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>

using namespace eprosima::fastdds::dds;
using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;

// One number: only the topic's name matters to permissions.
class Word : public TopicDataType
{
public:
  Word()
  {
    setName("Word");
    m_typeSize = 8;
    m_isGetKeyDefined = false;
  }

  bool serialize(void *data, SerializedPayload_t *payload) override
  {
    static const unsigned char little_endian[] = {0, 1, 0, 0};
    payload->encapsulation = CDR_LE;
    payload->length = 8;
    std::memcpy(payload->data, little_endian, 4);
    std::memcpy(payload->data + 4, data, 4);
    return true;
  }

  bool deserialize(SerializedPayload_t *payload, void *data) override
  {
    std::memcpy(data, payload->data + 4, 4);
    return true;
  }

  std::function<uint32_t()> getSerializedSizeProvider(void *) override
  {
    return [] { return 8u; };
  }

  void *createData() override { return new uint32_t{0}; }

  void deleteData(void *data) override { delete static_cast<uint32_t *>(data); }

  bool getKey(void *, InstanceHandle_t *, bool) override { return false; }
};

// End at once: there is nothing to clean up that the process does not.
[[noreturn]] static void tell(const std::string &words)
{
  std::printf("%s\n", words.c_str());
  std::fflush(stdout);
  std::_Exit(0);
}

template <typename T> static T *made(const std::string &what, T *entity)
{
  if (entity == nullptr)
    tell(what + " refused");
  return entity;
}

static void secure(DomainParticipantQos &qos, const std::string &enclave)
{
  const std::string authentication = "dds.sec.auth.builtin.PKI-DH.";
  const std::string access = "dds.sec.access.builtin.Access-Permissions.";
  auto &properties = qos.properties().properties();
  const auto set_file = [&](const std::string &property, const std::string &file) {
    properties.emplace_back(property, "file://" + enclave + "/" + file);
  };
  properties.emplace_back("dds.sec.auth.plugin", "builtin.PKI-DH");
  properties.emplace_back("dds.sec.access.plugin", "builtin.Access-Permissions");
  properties.emplace_back("dds.sec.crypto.plugin", "builtin.AES-GCM-GMAC");
  set_file(authentication + "identity_ca", "identity_ca.cert.pem");
  set_file(authentication + "identity_certificate", "cert.pem");
  set_file(authentication + "private_key", "key.pem");
  set_file(authentication + "identity_crl", "crl.pem");
  set_file(access + "permissions_ca", "permissions_ca.cert.pem");
  set_file(access + "governance", "governance.p7s");
  set_file(access + "permissions", "permissions.p7s");
}

static bool publish(DataWriter *writer)
{
  uint32_t word = 1;
  PublicationMatchedStatus matched;
  writer->write(&word);
  writer->get_publication_matched_status(matched);
  return matched.current_count > 0;
}

static bool receive(DataReader *reader)
{
  uint32_t word;
  SampleInfo info;
  return reader->take_next_sample(&word, &info) == ReturnCode_t::RETCODE_OK && info.valid_data;
}

int main(int count, char **words)
{
  if (count != 6)
    return 2;
  const std::string enclave = words[1];
  const bool publishes = std::strcmp(words[3], "publish") == 0;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(std::atof(words[5]));
  DomainParticipantQos qos;
  const auto one_host = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
  one_host->interfaceWhiteList = {"127.0.0.1"};
  qos.transport().use_builtin_transports = false;
  qos.transport().user_transports.push_back(one_host);
  if (enclave != "-")
    secure(qos, enclave);
  auto *factory = DomainParticipantFactory::get_instance();
  auto *participant =
      made("participant", factory->create_participant(std::atoi(words[2]), qos));
  TypeSupport type(new Word);
  type.register_type(participant);
  auto *topic = made("topic", participant->create_topic(words[4], "Word", TOPIC_QOS_DEFAULT));
  DataWriter *writer = nullptr;
  DataReader *reader = nullptr;
  if (publishes) {
    DataWriterQos latched;
    latched.durability().kind = TRANSIENT_LOCAL_DURABILITY_QOS;
    auto *publisher = participant->create_publisher(PUBLISHER_QOS_DEFAULT);
    writer = made("writer", publisher->create_datawriter(topic, latched));
  } else {
    DataReaderQos latched;
    latched.reliability().kind = RELIABLE_RELIABILITY_QOS;
    latched.durability().kind = TRANSIENT_LOCAL_DURABILITY_QOS;
    auto *subscriber = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT);
    reader = made("reader", subscriber->create_datareader(topic, latched));
  }
  bool done = false;
  // A writer stays until the end, so that its reader gets what was written.
  while (std::chrono::steady_clock::now() < end && !(done && !publishes)) {
    done |= publishes ? publish(writer) : receive(reader);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  tell(done ? (publishes ? "matched" : "received") : "alone");
}
