# The NEON kernels, compiled for aarch64 and tested under qemu-user (scripts/debian_packages_aarch64.txt):
# the tests of the statistics that know nothing of the machine, in one static program, GoogleTest from Debian's sources.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" OR MSPROBE_SANITIZE)
  return()  # the tests themselves run on NEON, or the sanitizers are of this machine alone
endif()
find_program(MSPROBE_AARCH64_CXX aarch64-linux-gnu-g++)
find_program(MSPROBE_AARCH64_QEMU NAMES qemu-aarch64-static qemu-aarch64)
set(googletest /usr/src/googletest/googletest)
foreach(needed MSPROBE_AARCH64_CXX MSPROBE_AARCH64_QEMU googletest)
  if(NOT EXISTS "${${needed}}")
    message(FATAL_ERROR "The NEON kernels are tested with a cross compiler for aarch64, qemu-user and the sources of GoogleTest, "
                        "and ${needed} is ${${needed}}. Install scripts/debian_packages_test.txt and "
                        "scripts/debian_packages_aarch64.txt, or configure with -DMSPROBE_BUILD_TESTS=OFF.")
  endif()
endforeach()

set(sources decode.cc kernels.cc kernels_neon.cc kernels_portable.cc layout.cc quantisation.cc signs.cc statistics.cc tensor_view.cc
            decode_test.cc kernels_test.cc layout_test.cc signs_test.cc statistics_test.cc tensor_view_test.cc)
list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
# The headers of this machine's libraries that hold no code of its own (Abseil's containers) come behind the cross
# compiler's.
set(flags -std=c++20 -O3 -fno-math-errno -fno-trapping-math -I${CMAKE_SOURCE_DIR} -I${googletest}
          -I${googletest}/include -idirafter /usr/include)
set(program ${CMAKE_CURRENT_BINARY_DIR}/neon/stats_neon_test)
set(gtest ${CMAKE_CURRENT_BINARY_DIR}/neon/gtest.o)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/neon)
add_custom_command(OUTPUT ${gtest} COMMENT "Compiling GoogleTest for aarch64"
  COMMAND ${MSPROBE_AARCH64_CXX} ${flags} -c ${googletest}/src/gtest-all.cc -o ${gtest} VERBATIM)
add_custom_command(OUTPUT ${program} DEPENDS ${sources} ${headers} ${gtest} COMMENT "Compiling the NEON kernels and their tests"
  COMMAND ${MSPROBE_AARCH64_CXX} ${flags} -static ${sources} ${gtest} ${googletest}/src/gtest_main.cc -o ${program}
          -Wl,--no-warnings VERBATIM)
add_custom_target(stats_neon_test ALL DEPENDS ${program})
# More than the caches of an emulated machine hold is only long: half of all the time.
add_test(NAME stats_neon_test COMMAND ${MSPROBE_AARCH64_QEMU} ${program} --gtest_filter=-SignsTest.MoreThanCachesHold*)
