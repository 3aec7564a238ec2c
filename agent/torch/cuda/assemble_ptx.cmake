# cmake -DPTX=FILE -DARCHITECTURE=sm_90 -DHINTS=FOLDERS -P assemble_ptx.cmake: a test. NVIDIA's assembler has to take the kernels.
# It is looked for when the test runs, so that it may come later; without it the test is skipped, never absent.
file(SIZE ${PTX} size)
if(size EQUAL 0)
  message("skipped: no clang of this machine compiles for CUDA, so this build has no kernels")
  return()
endif()
find_program(assembler ptxas HINTS ${HINTS})
if(NOT assembler)
  message("skipped: there is no ptxas; scripts/requirements-test.txt has it")
  return()
endif()
execute_process(COMMAND ${assembler} --gpu-name ${ARCHITECTURE} --warning-as-error ${PTX} --output-file /dev/null
                COMMAND_ERROR_IS_FATAL ANY)
