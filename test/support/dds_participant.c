// Copyright 2026 The fdrl_ros maintainers
// SPDX-License-Identifier: Apache-2.0
//
// One DDS participant with the enclave that a ROS 2 node would have: it publishes or subscribes to
// one topic, and prints a line with what came of it. Only the topic's name matters to permissions.
//
//   dds_participant ENCLAVE|- DOMAIN publish|subscribe TOPIC SECONDS
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dds/dds.h"
#include "dds_participant.h"

static void set_file(dds_qos_t *qos, const char *property, const char *enclave, const char *file)
{
  char path[1000];
  snprintf(path, sizeof path, "file:%s/%s", enclave, file);
  dds_qset_prop(qos, property, path);
}

static void set_plugin(dds_qos_t *qos, const char *part, const char *library, const char *function)
{
  char name[100], value[100];
  snprintf(name, sizeof name, "dds.sec.%s.library.path", part);
  snprintf(value, sizeof value, "dds_security_%s", library);
  dds_qset_prop(qos, name, value);
  snprintf(name, sizeof name, "dds.sec.%s.library.init", part);
  snprintf(value, sizeof value, "init_%s", function);
  dds_qset_prop(qos, name, value);
  snprintf(name, sizeof name, "dds.sec.%s.library.finalize", part);
  snprintf(value, sizeof value, "finalize_%s", function);
  dds_qset_prop(qos, name, value);
}

static void secure(dds_qos_t *qos, const char *enclave)
{
  set_file(qos, "dds.sec.auth.identity_ca", enclave, "identity_ca.cert.pem");
  set_file(qos, "dds.sec.auth.identity_certificate", enclave, "cert.pem");
  set_file(qos, "dds.sec.auth.private_key", enclave, "key.pem");
  set_file(qos, "org.eclipse.cyclonedds.sec.auth.crl", enclave, "crl.pem");
  set_file(qos, "dds.sec.access.permissions_ca", enclave, "permissions_ca.cert.pem");
  set_file(qos, "dds.sec.access.governance", enclave, "governance.p7s");
  set_file(qos, "dds.sec.access.permissions", enclave, "permissions.p7s");
  set_plugin(qos, "auth", "auth", "authentication");
  set_plugin(qos, "crypto", "crypto", "crypto");
  set_plugin(qos, "access", "ac", "access_control");
}

// End if an entity could not be made.
static dds_entity_t made(const char *what, dds_entity_t entity)
{
  if (entity < 0) {
    printf("%s refused: %s\n", what, dds_strretcode(entity));
    exit(1);
  }
  return entity;
}

static bool publish(dds_entity_t writer)
{
  dds_publication_matched_status_t matched;
  dds_participant_Text text = {"text"};
  dds_write(writer, &text);
  dds_get_publication_matched_status(writer, &matched);
  return matched.total_count > 0;
}

static bool receive(dds_entity_t reader)
{
  void *samples[1] = {NULL};
  dds_sample_info_t infos[1];
  int count = dds_take(reader, samples, infos, 1, 1);
  bool valid = count > 0 && infos[0].valid_data;
  if (count > 0)
    dds_return_loan(reader, samples, count);
  return valid;
}

int main(int count, char **words)
{
  if (count != 6)
    return 2;
  bool publishes = strcmp(words[3], "publish") == 0, done = false;
  dds_time_t end = dds_time() + (dds_time_t)(1e9 * atof(words[5]));
  dds_qos_t *qos = dds_create_qos(), *latched = dds_create_qos();
  dds_qset_reliability(latched, DDS_RELIABILITY_RELIABLE, DDS_SECS(1));
  dds_qset_durability(latched, DDS_DURABILITY_TRANSIENT_LOCAL);
  if (strcmp(words[1], "-") != 0)
    secure(qos, words[1]);
  dds_entity_t participant =
      made("participant", dds_create_participant((dds_domainid_t)atoi(words[2]), qos, NULL));
  dds_entity_t topic = made(
      "topic", dds_create_topic(participant, &dds_participant_Text_desc, words[4], NULL, NULL));
  dds_entity_t end_point = publishes
                               ? made("writer", dds_create_writer(participant, topic, latched, NULL))
                               : made("reader", dds_create_reader(participant, topic, latched, NULL));
  // A writer stays until the end, so that its reader gets what was written.
  while (dds_time() < end && !(done && !publishes)) {
    done |= publishes ? publish(end_point) : receive(end_point);
    dds_sleepfor(DDS_MSECS(50));
  }
  printf("%s\n", done ? (publishes ? "matched" : "received") : "alone");
  dds_delete(participant);
  return 0;
}
