// Whoever calls at a member's door hears that it is alive also while a Python thread keeps the GIL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deltawire/door.h"

namespace deltawire::python {

// A line on which a keeper's thread repeats a text, twice a second. Thread rule: any thread; the text stands
// between two messages.
class KeptLine final : public Line {
 public:
  explicit KeptLine(std::unique_ptr<Line> line) : line_(std::move(line)) {}

  Endpoint peer() const override { return line_->peer(); }
  Status send(Bytes message, Deadline deadline) override;
  Result<std::vector<std::byte>> receive(std::size_t bytes_max, Deadline deadline) override;
  std::uint64_t bytes_received() const noexcept override { return line_->bytes_received(); }
  void hang_up() noexcept override { line_->hang_up(); }

  // Nothing: from now on no text.
  void keep(std::optional<std::string> text);
  // Says the text if it is time to, and nobody uses the line.
  void tell(Deadline now);

 private:
  std::mutex mutex_;
  std::unique_ptr<Line> line_;
  std::optional<std::string> text_;
  Deadline tell_at_{};
  bool is_broken_ = false;
};

struct KeeperWords {
  std::string question;              // this message is answered with the description
  std::vector<std::string> waiting;  // who begins so is kept waiting with the text `wait`
  std::string wait;
  std::size_t bytes_max = 0;  // of a message
};

// Thread rule: any thread may call any member.
class Doorkeeper {
 public:
  using Visit = std::pair<std::shared_ptr<KeptLine>, std::vector<std::byte>>;

  // Throws std::system_error if there can be no thread.
  Doorkeeper(std::unique_ptr<Door> door, KeeperWords words);
  ~Doorkeeper();
  Doorkeeper(const Doorkeeper&) = delete;
  Doorkeeper& operator=(const Doorkeeper&) = delete;

  Endpoint endpoint() const { return endpoint_; }
  void describe(std::string answer);
  // The next caller that has said something else than the question, and what; nothing if none has in time.
  std::optional<Visit> next(Deadline deadline);

 private:
  struct Fresh {
    std::shared_ptr<KeptLine> line;
    Deadline until;
  };

  void run();
  void hear_fresh(Deadline now);
  // Whether the line is still to be heard.
  bool hear(Fresh& fresh, Deadline now);

  const std::unique_ptr<Door> door_;
  const KeeperWords words_;
  const Endpoint endpoint_;
  std::deque<Fresh> fresh_;                    // of the thread
  std::vector<std::weak_ptr<KeptLine>> kept_;  // likewise
  std::mutex mutex_;
  std::condition_variable came_;
  std::string answer_;
  std::deque<Visit> visits_;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

}  // namespace deltawire::python
