// A team of threads that share the parts of a step. It is made once, and waits between steps without sleeping for as long as steps take.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace swamp {

// Tells the processor that this thread only waits.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

// Waits for something that another thread will do soon. Where it does not, because that thread needs this core, it gets the core.
template <class Done>
void wait_briefly(Done done) {
    for (int spins = 0; !done(); spins++) {
        if (spins > 1000)
            std::this_thread::yield();
        else
            pause();
    }
}

// A place where all threads of a team wait for each other, as often as they like.
class Barrier {
   public:
    explicit Barrier(int size) : size(uint64_t(size)) {}

    // `arrivals` is the caller's own, and 0 at first.
    void wait(uint64_t &arrivals) {
        arrivals += size;
        if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == arrivals) return;
        wait_briefly([&] { return arrived.load(std::memory_order_acquire) >= arrivals; });
    }

   private:
    const uint64_t size;
    alignas(128) std::atomic<uint64_t> arrived{0};  // in a line of the cache of its own
};

class Team {
   public:
    explicit Team(int size) : size(size) {
        try {
            for (int worker = 1; worker < size; worker++) threads.emplace_back([this, worker] { work(worker); });
        } catch (...) {  // the system gives no more threads
            end();
            throw;
        }
    }
    ~Team() { end(); }
    Team(const Team &) = delete;

    const int size;
    std::mutex used;  // by one call at a time

    // Call job(worker) for each worker at the same time, and return when all have ended.
    void together(const std::function<void(int)> &job) {
        current = &job;
        failure = nullptr;
        waiting.store(size - 1, std::memory_order_relaxed);
        round.fetch_add(1);  // before it is read who sleeps: whoever falls asleep later sees the new round
        if (sleeping.load() > 0) {
            { std::lock_guard<std::mutex> lock(mutex); }
            wake.notify_all();
        }
        attempt(job, 0);
        wait_briefly([&] { return waiting.load(std::memory_order_acquire) == 0; });
        if (failure) std::rethrow_exception(failure);
    }

   private:
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake;
    std::atomic<uint64_t> round{0};
    std::atomic<int> waiting{0}, sleeping{0};
    std::atomic<bool> ending{false};
    const std::function<void(int)> *current = nullptr;
    std::exception_ptr failure;
    std::mutex failing;

    void end() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            ending = true;
            round.fetch_add(1);
        }
        wake.notify_all();
        for (std::thread &thread : threads) thread.join();
    }

    void attempt(const std::function<void(int)> &job, int worker) {
        try {
            job(worker);
        } catch (...) {
            std::lock_guard<std::mutex> lock(failing);
            failure = std::current_exception();
        }
    }

    void work(int worker) {
        uint64_t seen = 0;
        while (true) {
            for (int spins = 0; spins < 20000 && round.load(std::memory_order_acquire) == seen; spins++) pause();
            if (round.load(std::memory_order_acquire) == seen) {
                std::unique_lock<std::mutex> lock(mutex);
                sleeping.fetch_add(1);
                wake.wait(lock, [&] { return round.load() != seen; });
                sleeping.fetch_sub(1);
            }
            seen = round.load(std::memory_order_acquire);
            if (ending) return;
            attempt(*current, worker);
            waiting.fetch_sub(1, std::memory_order_release);
        }
    }
};

}  // namespace swamp
